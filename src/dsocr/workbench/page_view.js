// A page image with the outlines of its lines and regions. The view (zoom, rotation, filters) is the browser's own; shapes
// are changed here by hand and sent as an edit with the version that was seen. What the server answers is shown.
import TableGrid from "dsocr-workbench/table_grid.js";

const ZOOM_STEP = 1.25;
const MAX_SCALE = 8; // screen pixels a page pixel
const CLICK = 4; // screen pixels that a pointer may move in a click
const LONGEST_WAIT = 5000; // milliseconds for the answer to an edit
const MARGIN = 24; // screen pixels around a line that is brought into view
const WIDTHS = [1600, 3200]; // of the image files; a wider page is loaded in full when it is zoomed in
const COMMAND_BY_CODE = {
  // the key's position, which a Russian layout does not change; with Alt while typing
  Equal: "zoomIn",
  NumpadAdd: "zoomIn",
  Minus: "zoomOut",
  NumpadSubtract: "zoomOut",
  Digit0: "actualSize",
  Numpad0: "actualSize",
  KeyF: "fitPage",
  KeyL: "fitLine",
  KeyT: "rotate",
  KeyC: "invert",
  KeyV: "read",
  KeyE: "shape",
  KeyB: "grid",
};
const SHAPE_COMMAND_BY_CODE = {
  // in shape mode, with the page in focus
  KeyN: "lineBelow",
  KeyB: "drawLine",
  KeyG: "drawRegion",
  KeyK: "knife",
  KeyM: "merge",
  BracketLeft: "earlier",
  BracketRight: "later",
  Delete: "remove",
  Backspace: "remove",
};
const GRID_COMMAND_BY_CODE = {
  // while tables are changed, with the page in focus
  KeyR: "drawRuling",
  KeyM: "joinCells",
  KeyK: "splitCells",
  KeyG: "drawTable",
  Insert: "addRuling",
  Delete: "removeRuling",
  Backspace: "removeRuling",
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const VIEW_TOOLS = [
  ["zoomOut", "zoom_out"],
  ["zoomIn", "zoom_in"],
  ["fitPage", "fit_screen"],
  ["fitLine", "swap_horiz"],
  ["rotate", "rotate_90_degrees_cw"],
  ["invert", "invert_colors"],
];
const SHAPE_TOOLS = [
  ["drawLine", "polyline"],
  ["lineBelow", "playlist_add"],
  ["knife", "content_cut"],
  ["merge", "call_merge"],
  ["earlier", "arrow_upward"],
  ["later", "arrow_downward"],
  ["drawRegion", "highlight_alt"],
  ["remove", "delete_outline"],
  ["findAgain", "document_scanner"],
];
const GRID_TOOLS = [
  ["findTables", "document_scanner"],
  ["drawTable", "highlight_alt"],
  ["drawRuling", "border_inner"],
  ["removeRuling", "border_clear"],
  ["joinCells", "call_merge"],
  ["splitCells", "call_split"],
  ["removeTable", "delete_outline"],
];
const IN_GRID = new Set(["joinCells", "splitCells", "removeRuling", "addRuling", "removeTable"]);
const SENT = new Set(["lineBelow", "merge", "earlier", "later"]);
const TOOL_BY_COMMAND = {
  drawLine: "line",
  drawRegion: "region",
  knife: "knife",
  drawTable: "table",
  drawRuling: "ruling",
};
const STROKES = new Set(["knife", "ruling"]); // tools that draw a straight line
const DRAWN = { line: "addBox", region: "addRegion", table: "addTable" }; // with a box or a polygon

const isTyping = (target) => target.matches?.("input, textarea, select, [contenteditable=true]");
const between = (number, least, most) => Math.min(Math.max(number, least), most);
const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const middle = (a, b) => [Math.round((a[0] + b[0]) / 2), Math.round((a[1] + b[1]) / 2)];
const corners = ([x1, y1], [x2, y2]) => {
  const [left, right, top, bottom] = [Math.min(x1, x2), Math.max(x1, x2), Math.min(y1, y2), Math.max(y1, y2)];
  return [[left, top], [right, top], [right, bottom], [left, bottom]];
};

export default {
  components: { TableGrid },
  template: `
<div class="page-view" :class="{ shaping, gridding }">
  <div class="page-view-tools" role="toolbar" :aria-label="labels.view">
    <q-btn v-for="[name, icon] in viewTools" :key="name" flat dense :icon="icon" :aria-label="labels[name]"
      :title="labels[name]" :aria-pressed="pressed(name)" :class="{ pressed: pressed(name) }" @click="run(name)" />
    <q-btn flat dense icon="tune" :aria-label="labels.adjust" :title="labels.adjust">
      <q-menu><div class="page-view-sliders">
        <label v-for="name in ['contrast', 'brightness']" :key="name">{{ labels[name] }}
          <input type="range" min="0.5" max="2.5" step="0.05" v-model.number="look[name]" @dblclick="look[name] = 1" />
        </label>
      </div></q-menu>
    </q-btn>
    <q-btn flat dense icon="fullscreen" :aria-label="labels.read" :title="labels.read" :aria-pressed="reading"
      :class="{ pressed: reading }" @click="run('read')" />
    <q-btn v-if="labels.kinds" flat dense icon="edit_square" :aria-label="labels.shape" :title="labels.shape" :aria-pressed="shaping"
      :class="{ pressed: shaping }" @click="run('shape')" />
    <q-btn v-if="labels.kinds" flat dense icon="table_chart" :aria-label="labels.grid" :title="labels.grid" :aria-pressed="gridding"
      :class="{ pressed: gridding }" @click="run('grid')" />
  </div>
  <div v-if="gridding" class="page-view-tools" role="toolbar" :aria-label="labels.grid">
    <q-btn v-for="[name, icon] in gridTools" :key="name" flat dense :icon="icon" :aria-label="labels[name]"
      :title="labels[name]" :aria-pressed="pressed(name)" :class="{ pressed: pressed(name) }" :disable="!possible(name)"
      @click="run(name)" />
    <span class="page-view-hint" role="status">{{ hint }}</span>
  </div>
  <div v-if="shaping" class="page-view-tools" role="toolbar" :aria-label="labels.shape">
    <q-btn v-for="[name, icon] in shapeTools" :key="name" flat dense :icon="icon" :aria-label="labels[name]"
      :title="labels[name]" :aria-pressed="pressed(name)" :class="{ pressed: pressed(name) }" :disable="!possible(name)"
      @click="run(name)" />
    <select v-model="kind" :aria-label="labels.kind" :title="labels.kind" @change="retype">
      <option v-for="([value, name], place) in kindOptions" :key="value" :value="value">
        {{ place < 9 ? place + 1 + " " : "" }}{{ name }}
      </option>
    </select>
    <select :value="regionOfChosen" :aria-label="labels.assign" :title="labels.assign" :disabled="!chosen.length"
      @change="assign">
      <option :value="0">{{ labels.noRegion }}</option>
      <option v-for="(region, place) in regions" :key="region.number" :value="region.number">
        {{ place + 1 }} {{ labels.kinds[region.kind] ?? region.kind }}
      </option>
      <option v-if="cellOfChosen" :value="regionOfChosen">{{ cellOfChosen }}</option>
    </select>
    <span class="page-view-hint" role="status">{{ hint }}</span>
  </div>
  <div ref="window" class="page-view-window" :class="[tool && 'drawing']" tabindex="0" :aria-label="labels.canvas"
    role="group" @wheel.prevent="wheel" @pointerdown="down" @pointermove="move" @pointerup="up" @pointercancel="cancel"
    @dblclick="doubleClicked" @keydown="windowKey">
    <div ref="layer" class="page-view-layer" :style="{ width: page.width + 'px', height: page.height + 'px' }">
      <img :key="page.number" ref="image" :src="source" :alt="labels.page" :style="{ filter }" draggable="false" />
      <svg :viewBox="'0 0 ' + page.width + ' ' + page.height" aria-hidden="true">
        <template v-if="shaping">
          <g v-for="region in drawnRegions" :key="'r' + region.number" :data-region="region.number">
            <polygon class="region" :class="{ chosen: region.number === chosenRegion }"
              :points="region.polygon.join(' ')" />
          </g>
        </template>
        <polygon v-for="line in drawnLines" :key="line.number" :data-line="line.number"
          :class="['line', line.state, { selected: line.number === selected, chosen: isChosen(line.number) }]"
          :points="line.polygon.join(' ')" />
        <template v-if="shaping">
          <polyline v-for="line in drawnLines" :key="'b' + line.number" class="baseline"
            :points="line.baseline.join(' ')" />
          <text v-for="(line, place) in drawnLines" :key="'t' + line.number" class="label line-number"
            :x="Math.max(leftmost(line.polygon)[0], page.width / 50)" :y="leftmost(line.polygon)[1]">{{ place + 1 }}</text>
          <g v-for="(region, place) in drawnRegions" :key="'n' + region.number" :data-region="region.number">
            <text class="label" :x="leftmost(region.polygon)[0]" :y="topmost(region.polygon)[1]">
              {{ place + 1 }} {{ labels.kinds[region.kind] ?? region.kind }}</text>
          </g>
          <template v-for="[part, points] in handles" :key="part">
            <circle v-for="[place, point] in gaps(part, points)" :key="part + 'gap' + place" class="handle gap"
              :cx="point[0]" :cy="point[1]" :data-part="part" :data-gap="place" />
            <circle v-for="(point, place) in points" :key="part + place" class="handle" :class="part" tabindex="0"
              :cx="point[0]" :cy="point[1]" :data-part="part" :data-point="place"
              :style="{ '--room': room(points, place) + 'px' }" />
          </template>
          </template>
        <table-grid v-if="gridding" ref="grid" :key="page.number" :tables="tables" :page="page"
          @edit="(what, details) => send(what, [], null, details)" @vue:mounted="gridsShown++" />
        <polyline v-if="sketch.length" class="sketch" :points="sketch.join(' ')" />
      </svg>
    </div>
  </div>
</div>`,
  props: {
    page: Object, // {number, width, height}
    lines: Array, // {number, version, state, polygon, baseline, region} in reading order
    regions: Array, // {number, version, kind, polygon}, without cells of tables
    tables: Array, // see table_grid.js
    selected: Number,
    answered: Number, // edits that the server carried out or refused
    labels: Object,
    kinds: Array, // region types
  },
  emits: ["pick", "edit"],
  data() {
    return {
      viewTools: VIEW_TOOLS,
      shapeTools: SHAPE_TOOLS,
      gridTools: GRID_TOOLS,
      look: { contrast: 1, brightness: 1, inverted: false },
      reading: false,
      shaping: false,
      gridding: false, // tables are changed
      gridsShown: 0, // so that what depends on the grid is drawn again when there is one
      tool: null, // what is drawn: "line", "region", "knife", "table" or "ruling"
      kind: "paragraph",
      chosen: [], // numbers of lines
      chosenRegion: null,
      changed: null, // {number, part: "line" or "region", polygon, baseline}: dragged, not answered yet
      sketch: [], // points of what is being drawn
      width: WIDTHS[0], // of the loaded image
    };
  },
  computed: {
    source() {
      return `/picture/page/${this.page.number}` + (this.width < this.page.width ? `?width=${this.width}` : "");
    },
    filter() {
      const { contrast, brightness, inverted } = this.look;
      const parts = [contrast !== 1 && `contrast(${contrast})`, brightness !== 1 && `brightness(${brightness})`];
      return [...parts, inverted && "invert(1)"].filter(Boolean).join(" ") || "none";
    },
    drawnLines() {
      return this.lines.map((line) => this.withChange(line, "line"));
    },
    drawnRegions() {
      return this.regions.map((region) => this.withChange(region, "region"));
    },
    handles() {
      if (this.tool) return [];
      const region = this.drawnRegions.find((one) => one.number === this.chosenRegion);
      if (region) return [["polygon", region.polygon]];
      const line = this.chosen.length === 1 && this.drawnLines.find((one) => one.number === this.chosen[0]);
      return line ? [["polygon", line.polygon], ["baseline", line.baseline]] : [];
    },
    regionOfChosen() {
      const found = new Set(this.lines.filter((one) => this.isChosen(one.number)).map((one) => one.region ?? 0));
      return found.size === 1 ? [...found][0] : 0;
    },
    cellOfChosen() {
      for (const { cells } of this.tables)
        for (const [number, row, column] of cells)
          if (number === this.regionOfChosen) return `${this.labels.cell} ${row + 1}.${column + 1}`;
      return "";
    },
    kindOptions() {
      const known = this.regions.map((region) => region.kind);
      return [...new Set([...this.kinds, ...known])].map((kind) => [kind, this.labels.kinds[kind] ?? kind]);
    },
    hint() {
      if (this.tool) return this.labels[`hint_${this.tool}`];
      if (this.gridding) return this.gridsShown && this.$refs.grid ? this.labels[`hint_grid_${this.$refs.grid.hint}`] : "";
      return this.chosen.length || this.chosenRegion ? this.labels.hint_chosen : this.labels.hint_choose;
    },
  },
  created() {
    this.at = { x: 0, y: 0, scale: 1 }; // where the page's left upper corner is in the window
    this.turn = 0;
    this.fit = "width"; // what is kept when the window or the line changes
    this.pointers = new Map();
    this.drag = null;
    this.waitingUntil = 0; // for the answer to an edit, which is lost with the connection
    this.queue = []; // what is done then
    try {
      Object.assign(this.look, JSON.parse(localStorage.getItem("dsocr.look") ?? "{}"));
    } catch {
      // what another program stored there
    }
  },
  mounted() {
    document.addEventListener("keydown", this.keyPressed);
    document.addEventListener("fullscreenchange", this.fullscreenChanged);
    this.observer = new ResizeObserver(() => this.refit());
    this.observer.observe(this.$refs.window);
  },
  unmounted() {
    document.removeEventListener("keydown", this.keyPressed);
    document.removeEventListener("fullscreenchange", this.fullscreenChanged);
    this.observer.disconnect();
  },
  watch: {
    look: {
      deep: true,
      handler(now) {
        localStorage.setItem("dsocr.look", JSON.stringify(now));
      },
    },
    "page.number"() {
      this.width = WIDTHS[0];
      this.chosen = [];
      this.stop();
      if (this.fit === "free") this.fit = "width";
      this.$nextTick(() => this.refit());
    },
    selected(now) {
      if (!this.isChosen(now)) this.choose(now);
      this.$nextTick(() => (this.fit === "line" ? this.refit(true) : this.bringIntoView(true)));
    },
    lines(now) {
      const left = new Set(now.map((line) => line.number));
      this.chosen = this.chosen.filter((number) => left.has(number));
    },
    regions(now) {
      if (!now.some((region) => region.number === this.chosenRegion)) this.chosenRegion = null;
    },
    answered() {
      const isDragging = this.drag && !this.drag.isClick;
      if (!isDragging) this.changed = null; // otherwise it is what is being dragged
      this.$refs.grid?.answered(isDragging);
      this.$nextTick(this.answer);
    },
  },
  methods: {
    // The view

    turned() {
      const { width, height } = this.page;
      return this.turn % 180 ? [height, width] : [width, height];
    },
    toWindow([x, y]) {
      const { width, height } = this.page;
      const [u, v] = { 0: [x, y], 90: [height - y, x], 180: [width - x, height - y], 270: [y, width - x] }[this.turn];
      return [u * this.at.scale + this.at.x, v * this.at.scale + this.at.y];
    },
    toPage(event) {
      const { left, top } = this.$refs.window.getBoundingClientRect();
      const [u, v] = [(event.clientX - left - this.at.x) / this.at.scale, (event.clientY - top - this.at.y) / this.at.scale];
      const { width, height } = this.page;
      const [x, y] = { 0: [u, v], 90: [v, height - u], 180: [width - u, height - v], 270: [width - v, u] }[this.turn];
      return [between(Math.round(x), 0, width - 1), between(Math.round(y), 0, height - 1)];
    },
    apply(glide) {
      const [width, height] = this.turned();
      const { clientWidth, clientHeight } = this.$refs.window;
      const { scale } = this.at;
      const within = (at, page, room) => (page < room ? (room - page) / 2 : between(at, room - page, 0));
      this.at.x = within(this.at.x, width * scale, clientWidth);
      this.at.y = within(this.at.y, height * scale, clientHeight);
      const [dx, dy] = { 0: [0, 0], 90: [width, 0], 180: [width, height], 270: [0, height] }[this.turn];
      const layer = this.$refs.layer;
      layer.classList.toggle("glide", Boolean(glide));
      layer.style.transform =
        `translate(${this.at.x}px, ${this.at.y}px) scale(${scale}) translate(${dx}px, ${dy}px) rotate(${this.turn}deg)`;
      layer.style.setProperty("--unit", `${1 / scale}px`);
      clearTimeout(this.sharpening);
      this.sharpening = setTimeout(() => this.sharpen(), 200);
    },
    sharpen() {
      const needed = this.at.scale * this.page.width * devicePixelRatio * 0.9;
      if (needed > this.width) this.width = WIDTHS.find((width) => width >= needed) ?? this.page.width;
    },
    zoom(factor, x, y) {
      const { clientWidth, clientHeight } = this.$refs.window;
      const [width, height] = this.turned();
      const least = Math.min(1, (0.5 * clientWidth) / width, (0.5 * clientHeight) / height);
      const scale = between(this.at.scale * factor, least, MAX_SCALE);
      const [u, v] = [x ?? clientWidth / 2, y ?? clientHeight / 2];
      this.at.x = u - ((u - this.at.x) * scale) / this.at.scale;
      this.at.y = v - ((v - this.at.y) * scale) / this.at.scale;
      this.at.scale = scale;
      this.fit = "free";
      this.apply();
    },
    boxOf(number) {
      const line = this.lines.find((one) => one.number === number);
      if (!line) return null;
      const points = line.polygon.map(this.toWindow);
      const [across, down] = [points.map(([x]) => x), points.map(([, y]) => y)];
      return [Math.min(...across), Math.min(...down), Math.max(...across), Math.max(...down)];
    },
    refit(glide) {
      const { clientWidth, clientHeight } = this.$refs.window;
      if (!clientWidth || !clientHeight) return;
      const [width, height] = this.turned();
      if (this.fit === "width") this.at.scale = Math.min(clientWidth / width, MAX_SCALE);
      if (this.fit === "page") this.at.scale = Math.min(clientWidth / width, clientHeight / height, MAX_SCALE);
      const box = this.boxOf(this.selected);
      if (this.fit === "line" && box) {
        const [across, down] = [(box[2] - box[0]) / this.at.scale, (box[3] - box[1]) / this.at.scale];
        this.at.scale = Math.min((clientWidth - 2 * MARGIN) / across, clientHeight / (3 * down), MAX_SCALE);
      }
      this.bringIntoView(glide, this.fit === "line" || this.fit === "width");
    },
    bringIntoView(glide, always) {
      const box = this.boxOf(this.selected);
      const { clientWidth, clientHeight } = this.$refs.window;
      if (box) {
        const [left, top, right, bottom] = box;
        const isIn = left >= 0 && right <= clientWidth && top >= MARGIN && bottom <= clientHeight - MARGIN;
        if (always || !isIn) {
          this.at.y += clientHeight / 2 - (top + bottom) / 2;
          this.at.x += right - left > clientWidth ? MARGIN - left : clientWidth / 2 - (left + right) / 2;
        }
      }
      this.apply(glide);
    },

    // Commands

    keyPressed(event) {
      if (event.isComposing || event.ctrlKey || event.metaKey || document.querySelector(".q-dialog")) return;
      if (event.key === "Escape" && (this.tool || this.reading)) {
        if (this.tool) this.stop();
        else this.run("read");
        return;
      }
      if (!event.altKey && (isTyping(event.target) || event.defaultPrevented)) return;
      const command = event.shiftKey && event.code !== "Equal" ? undefined : COMMAND_BY_CODE[event.code];
      if (command) {
        event.preventDefault();
        this.run(command);
      }
    },
    windowKey(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const arrow = ARROWS[event.code];
      const { part, point } = event.target.dataset ?? {};
      if (this.gridding) {
        this.gridKey(event, arrow);
        return;
      }
      if (!this.shaping) {
        if (arrow) {
          event.preventDefault();
          this.pan(-arrow[0] * 60, -arrow[1] * 60);
        }
        return;
      }
      const by = arrow?.map((one) => one * (event.shiftKey ? 10 : 1));
      const command = SHAPE_COMMAND_BY_CODE[event.code];
      const number = /^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1];
      if (event.key === "Enter" && this.sketch.length) this.finishSketch();
      else if (event.key === "Enter" && !this.tool) this.write();
      else if (arrow && part) this.whenAnswered(() => this.movePoint(part, Number(point), by));
      else if (arrow && (this.chosen.length || this.chosenRegion)) this.whenAnswered(() => this.shift(by));
      else if (event.code === "Delete" && part) this.whenAnswered(() => this.removePoint(part, Number(point)));
      else if (event.code === "Insert" && part) this.whenAnswered(() => this.insertPoint(part, Number(point) + 1));
      else if (command && this.possible(command)) this.run(command);
      else if (number) this.retypeBy(Number(number) - 1);
      else return;
      event.preventDefault();
    },
    retypeBy(place) {
      this.kind = this.kindOptions[place][0];
      this.whenAnswered(() => this.retype());
    },
    gridKey(event, arrow) {
      const { grid } = this.$refs;
      const command = GRID_COMMAND_BY_CODE[event.code];
      if (event.key === "Enter" && this.sketch.length) this.finishSketch();
      else if (event.key === "Enter" && !this.tool) this.write();
      else if (arrow && grid.chosen?.axis) {
        const by = arrow.map((step) => step * (event.shiftKey ? 10 : 1));
        this.whenAnswered(() => grid.move(by));
      } else if (arrow && grid.chosen?.from) grid.stepCell(arrow, event.shiftKey);
      else if (command && this.possible(command)) this.run(command);
      else return;
      event.preventDefault();
    },
    isWaiting() {
      return performance.now() < this.waitingUntil;
    },
    whenAnswered(act) {
      // a key may come before the answer to the one before, as when an arrow is held down: it needs the new versions
      if (this.isWaiting()) {
        this.queue.push(act);
        return;
      }
      this.queue = [];
      act();
    },
    answer() {
      this.waitingUntil = 0;
      while (this.queue.length && !this.isWaiting()) this.queue.shift()();
    },
    pressed(name) {
      if (name === "invert") return this.look.inverted;
      return name in TOOL_BY_COMMAND ? this.tool === TOOL_BY_COMMAND[name] : undefined;
    },
    possible(name) {
      if (this.gridding) return this.gridsShown > 0 && Boolean(this.$refs.grid?.possible(name));
      if (name === "merge") return this.chosen.length > 1;
      if (name === "earlier" || name === "later") return this.chosen.length === 1 || this.chosenRegion !== null;
      if (name === "lineBelow") return this.chosen.length === 1;
      return name !== "remove" || this.chosen.length > 0 || this.chosenRegion !== null;
    },
    write() {
      // the field for the line is another component
      document.dispatchEvent(new Event("dsocr-write"));
    },
    run(name) {
      if (IN_GRID.has(name)) this.whenAnswered(() => this.$refs.grid?.run(name));
      else if (SENT.has(name)) this.whenAnswered(() => this.possible(name) && this.send(name, this.chosen, this.chosenRegion));
      else if (name in TOOL_BY_COMMAND) {
        const tool = this.tool === TOOL_BY_COMMAND[name] ? null : TOOL_BY_COMMAND[name];
        this.stop();
        this.tool = tool;
      } else if (name === "zoomIn" || name === "zoomOut") this.zoom(name === "zoomIn" ? ZOOM_STEP : 1 / ZOOM_STEP);
      else if (name === "actualSize") this.zoom(1 / this.at.scale);
      else if (name === "fitPage" || name === "fitLine") {
        this.fit = name === "fitPage" ? "page" : "line";
        this.refit(true);
      } else if (name === "rotate") {
        this.turn = (this.turn + 90) % 360;
        if (this.fit === "free") this.fit = "page";
        this.refit();
      } else if (name === "invert") this.look.inverted = !this.look.inverted;
      else if (name === "read") this.read(!this.reading);
      else if (name === "shape" && this.labels.kinds) {
        this.shaping = !this.shaping;
        this.gridding = false;
        this.stop();
        this.chosen = this.shaping && this.selected ? [this.selected] : [];
        this.chosenRegion = null;
        if (!this.shaping) this.write();
      } else if (name === "grid" && this.labels.kinds) {
        this.gridding = !this.gridding;
        this.shaping = false;
        this.stop();
        this.chosen = [];
        this.chosenRegion = null;
        if (!this.gridding) this.write();
      } else if (name === "findAgain" || name === "findTables") this.send(name, []);
      else if (name === "remove") this.whenAnswered(() => this.remove());
      // a button would keep the focus, and its keys
      const tools = this.shaping ? [...this.shapeTools, ["shape"]] : this.gridding ? [...this.gridTools, ["grid"]] : [];
      if (tools.some(([tool]) => tool === name))
        this.$refs.window.focus({ preventScroll: true });
    },
    remove() {
      if (this.chosenRegion) this.send("removeRegion", [], this.chosenRegion);
      else if (this.chosen.length) this.send("remove", this.chosen);
    },
    read(on) {
      this.reading = on;
      document.body.classList.toggle("reading", on);
      if (on) document.documentElement.requestFullscreen?.().catch(() => {}); // not every browser window can
      else if (document.fullscreenElement) document.exitFullscreen();
    },
    fullscreenChanged() {
      if (!document.fullscreenElement && this.reading) this.read(false);
    },

    // Pointers

    wheel(event) {
      if (event.shiftKey) {
        this.pan(-event.deltaY - event.deltaX, 0);
        return;
      }
      const { left, top } = this.$refs.window.getBoundingClientRect();
      const lines = event.deltaMode ? 16 : 1;
      const strength = event.ctrlKey ? 0.01 : 0.0015; // a pinch on a touchpad comes as small steps with Ctrl
      this.zoom(Math.exp(-event.deltaY * lines * strength), event.clientX - left, event.clientY - top);
    },
    pan(dx, dy) {
      this.at.x += dx;
      this.at.y += dy;
      this.fit = "free";
      this.apply();
    },
    down(event) {
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      this.$refs.window.setPointerCapture(event.pointerId);
      if (this.pointers.size > 1) {
        this.drag = { kind: "pinch" };
        this.changed = null;
        return;
      }
      const { dataset } = event.target;
      const line = dataset.line && Number(dataset.line);
      const region = Number(event.target.closest?.("[data-region]")?.dataset.region ?? 0);
      const from = [event.clientX, event.clientY];
      this.drag = { kind: "pan", from, last: from, start: this.toPage(event), line, region, isClick: true };
      if (!(this.shaping || this.gridding) || event.button !== 0) return;
      if (this.tool) this.drag.kind = this.tool;
      else if (this.gridding) {
        const ruling = this.$refs.grid.down(dataset);
        if (ruling) this.drag.kind = "moveRuling";
        Object.assign(this.drag, { end: ruling?.end, dataset: { ...dataset } });
      } else if (dataset.part) {
        if (dataset.gap) this.insertPoint(dataset.part, Number(dataset.gap), false);
        Object.assign(this.drag, { kind: "point", part: dataset.part, place: Number(dataset.gap ?? dataset.point) });
      } else if (line && this.isChosen(line)) this.drag.kind = "shift";
      else if (region && region === this.chosenRegion) this.drag.kind = "shift";
    },
    move(event) {
      const { drag } = this;
      if (this.tool && !STROKES.has(this.tool) && this.fixed?.length && !drag)
        this.sketch = [...this.fixed, this.toPage(event)];
      if (!drag || !this.pointers.has(event.pointerId)) return;
      const now = [event.clientX, event.clientY];
      if (drag.kind === "pinch") {
        this.pinch(event.pointerId, now);
        return;
      }
      this.pointers.set(event.pointerId, now);
      if (drag.isClick && distance(now, drag.from) < CLICK) return;
      drag.isClick = false;
      const point = this.toPage(event);
      if (drag.kind === "pan") this.pan(now[0] - drag.last[0], now[1] - drag.last[1]);
      else if (STROKES.has(drag.kind)) this.sketch = [drag.start, point];
      else if (drag.kind === "moveRuling") this.$refs.grid?.drag([point[0] - drag.start[0], point[1] - drag.start[1]], drag.end);
      else if (drag.kind in DRAWN) {
        const box = corners(drag.start, point);
        this.sketch = [...box, box[0]];
      } else if (drag.kind === "point") this.setPoint(drag.part, drag.place, point);
      else if (drag.kind === "shift") this.shift([point[0] - drag.start[0], point[1] - drag.start[1]], false);
      drag.last = now;
    },
    pinch(id, now) {
      const [a, b] = [...this.pointers.values()];
      this.pointers.set(id, now);
      const [c, d] = [...this.pointers.values()];
      const { left, top } = this.$refs.window.getBoundingClientRect();
      this.at.x += (c[0] + d[0] - a[0] - b[0]) / 2;
      this.at.y += (c[1] + d[1] - a[1] - b[1]) / 2;
      this.zoom(distance(c, d) / Math.max(distance(a, b), 1), (c[0] + d[0]) / 2 - left, (c[1] + d[1]) / 2 - top);
    },
    up(event) {
      const { drag } = this;
      this.pointers.delete(event.pointerId);
      if (this.pointers.size) return;
      this.drag = null;
      if (!drag || drag.kind === "pinch") return;
      const point = this.toPage(event);
      if (drag.kind === "point" || (drag.kind === "shift" && !drag.isClick)) {
        this.sendChanged();
      } else if (drag.kind === "moveRuling" && !drag.isClick) this.$refs.grid?.drop();
      else if (this.tool && drag.kind === this.tool) {
        if (drag.isClick && !STROKES.has(this.tool)) {
          this.fixed = [...(this.fixed ?? []), point];
          this.sketch = this.fixed;
        } else if (!drag.isClick) {
          if (this.tool === "knife") this.send("cut", [], null, { from: drag.start, to: point });
          else if (this.tool === "ruling") this.$refs.grid?.draw(drag.start, point);
          else this.send(DRAWN[this.tool], [], null, { polygon: corners(drag.start, point) });
          this.stop();
        }
      } else if (drag.isClick) this.clicked(drag, event, point);
    },
    cancel(event) {
      this.pointers.delete(event.pointerId);
      this.drag = this.changed = null;
      this.$refs.grid?.answered(false);
    },
    clicked({ line, region, dataset }, event, point) {
      if (this.gridding && event.button === 0) {
        this.$refs.grid?.clicked(dataset, event.shiftKey);
        if (!dataset.cell) return;
      }
      if (!this.shaping || event.button !== 0) {
        this.$emit("pick", { x: point[0], y: point[1] });
        return;
      }
      this.chosenRegion = line ? null : region || null;
      if (this.chosenRegion) this.kind = this.regions.find((one) => one.number === region).kind || this.kind;
      if (line && (event.shiftKey || event.ctrlKey)) {
        this.chosen = this.isChosen(line) ? this.chosen.filter((one) => one !== line) : [...this.chosen, line];
      } else {
        this.chosen = line ? [line] : [];
        if (line) this.$emit("pick", { line });
      }
    },
    doubleClicked(event) {
      if (this.fixed?.length) this.finishSketch();
      else if (this.shaping && event.target.dataset.point)
        this.removePoint(event.target.dataset.part, Number(event.target.dataset.point));
      else if (!this.shaping && !this.gridding) {
        const { left, top } = this.$refs.window.getBoundingClientRect();
        this.zoom(2, event.clientX - left, event.clientY - top);
      }
    },

    // Shapes

    leaveRegion(number) {
      if (this.chosenRegion) this.choose(number);
    },
    choose(number) {
      this.chosen = this.shaping ? [number] : [];
      this.chosenRegion = null;
    },
    isChosen(number) {
      return this.chosen.includes(number);
    },
    withChange(shape, part) {
      const changed = this.changed?.part === part && this.changed.shapes.get(shape.number);
      return changed ? { ...shape, ...changed } : shape;
    },
    shapesToChange() {
      const part = this.chosenRegion ? "region" : "line";
      const shapes = part === "region" ? this.regions : this.lines;
      const isWanted = (one) => (part === "region" ? one.number === this.chosenRegion : this.isChosen(one.number));
      return [part, shapes.filter(isWanted)];
    },
    change(transform, isFinal) {
      const [part, shapes] = this.shapesToChange();
      const entries = shapes.map((shape) => [
        shape.number,
        { polygon: transform(shape.polygon, "polygon"), baseline: transform(shape.baseline ?? [], "baseline") },
      ]);
      this.changed = { part, shapes: new Map(entries) };
      if (isFinal) this.sendChanged();
    },
    shift([dx, dy], isFinal = true) {
      this.change((points) => points.map(([x, y]) => [x + dx, y + dy]), isFinal);
    },
    changePart(name, edit, isFinal = true) {
      const points = this.handles.find(([part]) => part === name)[1];
      const edited = edit([...points]);
      const current = this.changed && [...this.changed.shapes.values()][0];
      this.change((own, part) => (part === name ? edited : current ? current[part] : own), isFinal);
    },
    setPoint(part, place, point) {
      this.changePart(part, (points) => points.with(place, point), false);
    },
    movePoint(part, place, [dx, dy]) {
      this.changePart(part, (points) => points.with(place, [points[place][0] + dx, points[place][1] + dy]));
    },
    insertPoint(part, place, isFinal = true) {
      const add = (points) => points.toSpliced(place, 0, middle(points[place - 1], points[place % points.length]));
      this.changePart(part, add, isFinal);
    },
    removePoint(part, place) {
      const points = this.handles.find(([name]) => name === part)[1];
      if (points.length > (part === "polygon" ? 3 : 2)) this.changePart(part, (all) => all.toSpliced(place, 1));
    },
    leftmost(points) {
      return points.reduce((one, other) => (other[0] < one[0] ? other : one));
    },
    topmost(points) {
      return points.reduce((one, other) => (other[1] < one[1] ? other : one));
    },
    room(points, place) {
      // half the way to the nearer neighbour, in pixels of the page
      const neighbours = [points.at(place - 1), points[(place + 1) % points.length]];
      return Math.min(...neighbours.map((other) => distance(points[place], other))) / 2;
    },
    gaps(part, points) {
      const following = (place) => points[(place + 1) % points.length];
      const pairs = points.map((point, place) => [place + 1, middle(point, following(place))]);
      const isWide = ([place]) => distance(points[place - 1], following(place - 1)) * this.at.scale > 24;
      return (part === "polygon" ? pairs : pairs.slice(0, -1)).filter(isWide);
    },
    finishSketch() {
      // a double click ends with two points at one place
      const points = (this.fixed ?? []).filter((point, place, all) => !place || distance(point, all[place - 1]) > 1);
      const least = this.tool === "line" ? 2 : 3;
      if (points.length >= least && this.tool === "line") this.send("addLine", [], null, { baseline: points });
      else if (points.length >= least) this.send(DRAWN[this.tool], [], null, { polygon: points });
      this.stop();
    },
    stop() {
      this.tool = this.drag = this.changed = null;
      this.fixed = this.sketch = [];
    },
    retype() {
      if (this.chosenRegion) this.send("retype", [], this.chosenRegion);
    },
    assign(event) {
      this.send("assign", this.chosen, Number(event.target.value) || null);
    },
    sendChanged() {
      if (!this.changed) return;
      const shapes = [...this.changed.shapes].map(([number, shape]) => ({ number, ...shape }));
      const { part } = this.changed;
      if (part === "region") this.send("reshapeRegion", [], this.chosenRegion, { polygon: shapes[0].polygon });
      else this.send("reshape", shapes.map((shape) => shape.number), null, { shapes });
    },
    send(what, lines, region = null, details = {}) {
      this.waitingUntil = performance.now() + LONGEST_WAIT;
      const versionOf = (list, number) => list.find((one) => one.number === number)?.version;
      this.$emit("edit", {
        what,
        page: this.page.number,
        lines: lines.map((number) => [number, versionOf(this.lines, number)]),
        region: region && [region, versionOf(this.regions, region)],
        kind: this.kind,
        ...details,
      });
    },
  },
};
