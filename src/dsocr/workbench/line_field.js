// The input field for a line. Text that is typed and not accepted (a draft) lives only here, with the version of the line
// it was typed on, and every action carries the text it is about: however late or out of order messages arrive, no other
// text is taken for it. Drafts survive a reload of the page.
const ACTION_BY_CODE = {
  // the key's position, which a Russian layout does not change
  ArrowDown: "next",
  ArrowUp: "previous",
  KeyU: "unreadable",
  KeyS: "split",
  KeyJ: "join",
  KeyZ: "undo",
  KeyA: "alternatives",
  KeyN: "note",
  KeyR: "search",
  KeyH: "help",
};
const MARK_BY_CODE = {
  KeyQ: "mark_doubtful",
  KeyG: "mark_gap",
  KeyX: "mark_struck",
  KeyI: "mark_inserted",
};
const QUEUED = ["next", "previous", "undo"]; // may be requested before the result of the last action is visible
const RESEND_AFTER = 3000; // ms without an answer

// Keys go to the page while its shapes are changed, whichever line is selected meanwhile.
const isShaping = () => Boolean(document.activeElement?.closest(".page-view:is(.shaping, .gridding)"));

export default {
  template: `<q-input ref="input" :model-value="text" @update:model-value="edited" />`,
  props: {
    id: String, // kept from the frame: `for` gives it to the input
    state: Object, // {number, version, text, removed, notified, answered, cleared}: see LineField
    store: String, // whose lines these are
    marks: Object, // [before, after] by the name of a mark
    shorthands: Object, // what a typed shorthand stands for
  },
  emits: ["action"],
  data() {
    return { text: "" };
  },
  created() {
    this.storageKey = `dsocr.${this.store}`;
    const { drafts, at } = JSON.parse(sessionStorage.getItem(this.storageKey) ?? "{}");
    this.drafts = drafts ?? {}; // {version, text} by the number of the line
    this.line = undefined; // the state that the field shows
    this.pending = undefined; // the action that is not answered yet
    this.queue = []; // actions requested meanwhile
    this.typedAhead = ""; // letters typed meanwhile: they belong to the next line
    this.sequence = 0;
    this.returnTo = at;
  },
  mounted() {
    document.addEventListener("keydown", this.keyPressed);
    document.addEventListener("dsocr-write", this.focus);
    this.$refs.input.nativeEl.addEventListener("beforeinput", this.beforeInput);
    this.show(this.state);
    if (this.returnTo !== undefined && this.returnTo !== this.line.number) this.act("go", this.returnTo);
  },
  unmounted() {
    document.removeEventListener("keydown", this.keyPressed);
    document.removeEventListener("dsocr-write", this.focus);
    clearTimeout(this.timer);
  },
  watch: {
    state(now) {
      this.show(now);
    },
  },
  methods: {
    focus() {
      this.$refs.input.nativeEl.focus();
    },
    edited(text) {
      const { number, version, text: stored } = this.line;
      this.text = this.expand(text ?? "");
      if (this.text === stored) delete this.drafts[number];
      else this.drafts[number] = { version: this.drafts[number]?.version ?? version, text: this.text };
      this.save();
    },
    expand(text) {
      // the longest shorthand before the cursor
      const input = this.$refs.input.nativeEl;
      const before = text.slice(0, input.selectionStart);
      const typed = Object.keys(this.shorthands ?? {}).filter((shorthand) => before.endsWith(shorthand));
      if (!typed.length || input.value !== text) return text;
      const longest = typed.reduce((one, other) => (other.length > one.length ? other : one));
      const at = before.length - longest.length;
      const expanded = text.slice(0, at) + this.shorthands[longest] + text.slice(before.length);
      const caret = at + this.shorthands[longest].length;
      this.text = expanded; // the next tick comes after it is shown, which moves the cursor to the end
      this.$nextTick(() => input.setSelectionRange(caret, caret));
      return expanded;
    },
    replaceRange(start, end, text, caret) {
      if (this.pending) return;
      const input = this.$refs.input.nativeEl;
      input.focus();
      input.setRangeText(text, start, end, "end");
      if (caret !== undefined) input.setSelectionRange(caret, caret);
      input.dispatchEvent(new Event("input", { bubbles: true }));
    },
    insert(text) {
      const input = this.$refs.input.nativeEl;
      this.replaceRange(input.selectionStart, input.selectionEnd, text);
    },
    mark(name) {
      const input = this.$refs.input.nativeEl;
      const [before, after] = this.marks[name];
      const { selectionStart: start, selectionEnd: end } = input;
      const marked = before + input.value.slice(start, end) + after;
      // without a selection the cursor goes between the marks
      this.replaceRange(start, end, marked, start === end && before ? start + before.length : undefined);
    },
    replaceWord(start, end, word) {
      // places count characters as Python does
      const characters = [...this.text];
      const places = [start, end].map((place) => characters.slice(0, place).join("").length);
      this.replaceRange(...places, word);
    },
    save() {
      sessionStorage.setItem(this.storageKey, JSON.stringify({ drafts: this.drafts, at: this.line.number }));
    },
    show(now) {
      const answered = this.pending !== undefined && now.answered === this.pending.sequence;
      if (answered) {
        for (const number of now.cleared) {
          // what was typed after the action is not part of it
          const isLater = number === this.pending.line && this.drafts[number]?.text !== this.pending.text;
          if (!isLater) delete this.drafts[number];
        }
        clearTimeout(this.timer);
        this.pending = undefined;
      }
      const moved = now.number !== this.line?.number;
      const draft = this.drafts[now.number];
      if (draft && now.notified === now.version) draft.version = now.version;
      this.line = now;
      this.text = draft?.text ?? now.text;
      this.save();
      if (answered || moved) this.$nextTick(() => this.resume(moved));
      if (now.removed && !draft && !this.pending) this.act("leave");
    },
    resume(moved) {
      const input = this.$refs.input.nativeEl;
      if (!isShaping()) {
        input.focus();
        if (moved) input.setSelectionRange(input.value.length, input.value.length);
      }
      if (this.typedAhead) {
        input.setRangeText(this.typedAhead, input.selectionStart, input.selectionEnd, "end");
        this.typedAhead = "";
        input.dispatchEvent(new Event("input", { bubbles: true }));
      }
      if (this.queue.length && !this.pending) this.act(this.queue.shift());
    },
    keyPressed(event) {
      if (event.isComposing || document.querySelector(".q-dialog")) return;
      const plain = !event.ctrlKey && !event.metaKey; // Ctrl+Alt is how some keyboards type letters
      const isEnter = event.target === this.$refs.input.nativeEl && event.key === "Enter";
      const mark = event.altKey && plain ? MARK_BY_CODE[event.code] : undefined;
      if (mark !== undefined) {
        event.preventDefault();
        if (!event.repeat) this.mark(mark);
        return;
      }
      const isHelp = event.key === "F1" || (event.key === "?" && !event.target.matches("input, textarea"));
      const byKey = isEnter ? "accept" : isHelp ? "help" : undefined;
      const action = event.altKey && plain ? ACTION_BY_CODE[event.code] : byKey;
      if (action !== undefined) {
        event.preventDefault();
        const moves = action === "next" || action === "previous";
        if (!event.repeat || (moves && !this.pending)) this.act(action);
      }
    },
    beforeInput(event) {
      // the text is on its way to the server; a composition cannot be held back and stays a draft
      if (!this.pending || !event.cancelable) return;
      event.preventDefault();
      this.typedAhead += event.data ?? "";
    },
    act(action, to) {
      if (this.pending) {
        if (QUEUED.includes(action)) this.queue.push(action);
        return;
      }
      const input = this.$refs.input.nativeEl;
      this.pending = {
        sequence: ++this.sequence,
        action,
        to,
        line: this.line.number,
        version: this.drafts[this.line.number]?.version ?? this.line.version,
        text: this.text,
        caret: [...this.text.slice(0, input.selectionStart)].length, // in characters as Python counts them
        drafts: action === "join" ? this.drafts : {},
      };
      this.send();
    },
    send() {
      this.$emit("action", this.pending);
      this.timer = setTimeout(() => this.send(), RESEND_AFTER);
    },
  },
};
