// The field in which a line is written. What was written and not accepted lives here alone, beside the version of the
// line it was written on, and every action carries the text it is about: whatever is late on its way to the server, or
// arrives in another order, no other text is taken for it. It outlives a page that is loaded again.
const ACTION_BY_CODE = {
  // the key's place, which a Russian layout does not change
  ArrowDown: "next",
  ArrowUp: "previous",
  KeyU: "unreadable",
  KeyS: "part",
  KeyJ: "join",
  KeyZ: "undo",
};
const BLIND = ["next", "previous", "undo"]; // may be asked for before what the last one led to is seen
const PATIENCE = 3000; // ms until an action that was not answered is told again

export default {
  template: `<q-input ref="input" :model-value="text" @update:model-value="wrote" />`,
  props: {
    id: String, // kept from the frame: `for` gives it to the input
    shown: Object, // {number, version, text, gone, told, answered, took}: see line_field.py
    store: String, // whose lines these are
  },
  emits: ["act"],
  data() {
    return { text: "" };
  },
  created() {
    this.kept = `dsocr.${this.store}`;
    const { drafts, at } = JSON.parse(sessionStorage.getItem(this.kept) ?? "{}");
    this.drafts = drafts ?? {}; // {version, text} by the number of the line
    this.line = undefined; // what the field shows, as the server told it
    this.sent = undefined; // the action that is not answered yet
    this.later = []; // actions asked for meanwhile
    this.ahead = ""; // letters typed meanwhile: they belong to what comes
    this.turn = 0;
    this.cameBackTo = at;
  },
  mounted() {
    document.addEventListener("keydown", this.pressed);
    this.$refs.input.nativeEl.addEventListener("beforeinput", this.writes);
    this.show(this.shown);
    if (this.cameBackTo !== undefined && this.cameBackTo !== this.line.number) this.act("go", this.cameBackTo);
  },
  unmounted() {
    document.removeEventListener("keydown", this.pressed);
    clearTimeout(this.telling);
  },
  watch: {
    shown(now) {
      this.show(now);
    },
  },
  methods: {
    wrote(text) {
      const { number, version, text: given } = this.line;
      this.text = text ?? "";
      if (this.text === given) delete this.drafts[number];
      else this.drafts[number] = { version: this.drafts[number]?.version ?? version, text: this.text };
      this.keep();
    },
    keep() {
      sessionStorage.setItem(this.kept, JSON.stringify({ drafts: this.drafts, at: this.line.number }));
    },
    show(now) {
      const answered = this.sent !== undefined && now.answered === this.sent.turn;
      if (answered) {
        for (const number of now.took) {
          // what was written after the action was asked for is not in it
          const later = number === this.sent.line && this.drafts[number]?.text !== this.sent.text;
          if (!later) delete this.drafts[number];
        }
        clearTimeout(this.telling);
        this.sent = undefined;
      }
      const elsewhere = now.number !== this.line?.number;
      const draft = this.drafts[now.number];
      if (draft && now.told === now.version) draft.version = now.version;
      this.line = now;
      this.text = draft?.text ?? now.text;
      this.keep();
      if (answered || elsewhere) this.$nextTick(() => this.goOn(elsewhere));
      if (now.gone && !draft && !this.sent) this.act("leave");
    },
    goOn(elsewhere) {
      const input = this.$refs.input.nativeEl;
      input.focus();
      if (elsewhere) input.setSelectionRange(input.value.length, input.value.length);
      if (this.ahead) {
        input.setRangeText(this.ahead, input.selectionStart, input.selectionEnd, "end");
        this.ahead = "";
        input.dispatchEvent(new Event("input", { bubbles: true }));
      }
      if (this.later.length && !this.sent) this.act(this.later.shift());
    },
    pressed(event) {
      if (event.isComposing || document.querySelector(".q-dialog")) return;
      const plain = !event.ctrlKey && !event.metaKey; // Ctrl+Alt is how some keyboards write letters
      const isEnter = event.target === this.$refs.input.nativeEl && event.key === "Enter";
      const action = event.altKey && plain ? ACTION_BY_CODE[event.code] : isEnter ? "accept" : undefined;
      if (action !== undefined) {
        event.preventDefault();
        const walks = action === "next" || action === "previous";
        if (!event.repeat || (walks && !this.sent)) this.act(action);
      }
    },
    writes(event) {
      // what stands in the field is on its way; what is a composition cannot be kept back, and stays a draft
      if (!this.sent || !event.cancelable) return;
      event.preventDefault();
      this.ahead += event.data ?? "";
    },
    act(action, to) {
      if (this.sent) {
        if (BLIND.includes(action)) this.later.push(action);
        return;
      }
      const input = this.$refs.input.nativeEl;
      this.sent = {
        turn: ++this.turn,
        action,
        to,
        line: this.line.number,
        version: this.drafts[this.line.number]?.version ?? this.line.version,
        text: this.text,
        caret: [...this.text.slice(0, input.selectionStart)].length, // in characters as Python counts them
        drafts: action === "join" ? this.drafts : {},
      };
      this.tell();
    },
    tell() {
      this.$emit("act", this.sent);
      this.telling = setTimeout(() => this.tell(), PATIENCE);
    },
  },
};
