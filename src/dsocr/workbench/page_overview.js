// Small images of all pages with the share of their lines that is reviewed. Nothing is loaded before the column is opened.
export default {
  template: `
<nav v-if="open" class="page-overview" :aria-label="labels.pages" ref="list">
  <button v-for="[number, name, reviewed, all] in pages" :key="number" type="button" :data-page="number"
    :aria-current="number === page ? 'page' : undefined" @click="$emit('pick', { page: number })"
    :title="name + ': ' + reviewed + ' ' + labels.of + ' ' + all">
    <img :src="'/picture/thumbnail/' + number" loading="lazy" alt="" width="120" height="160" />
    <span class="page-overview-name">{{ name }}</span>
    <progress :value="reviewed" :max="all || 1" aria-hidden="true"></progress>
    <span>{{ reviewed }} {{ labels.of }} {{ all }}</span>
  </button>
</nav>`,
  props: { page: Number, stamp: Number, labels: Object },
  emits: ["pick"],
  data() {
    return { open: localStorage.getItem("dsocr.pages") === "open" && innerWidth >= 1024, pages: [] };
  },
  mounted() {
    if (this.open) this.load();
  },
  watch: {
    stamp() {
      if (this.open) this.load();
    },
    page() {
      this.scroll();
    },
  },
  methods: {
    toggle() {
      this.open = !this.open;
      localStorage.setItem("dsocr.pages", this.open ? "open" : "closed");
      if (this.open) this.load();
    },
    async load() {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(async () => {
        const isFirst = !this.pages.length;
        const answer = await fetch("/pages.json").catch(() => null); // the server may be stopping
        if (!answer?.ok) return;
        this.pages = await answer.json();
        if (isFirst) this.$nextTick(() => this.scroll());
      }, this.pages.length ? 500 : 0);
    },
    scroll() {
      this.$nextTick(() => {
        const row = this.$refs.list?.querySelector("[aria-current]");
        row?.scrollIntoView({ block: "nearest", inline: "nearest" });
      });
    },
  },
};
