// The tables of a page over its image: rulings to choose and move, cells to choose. It is inside the picture of
// `page_view.js`, which hands on pointers and keys; what is changed is emitted as an edit with the version that was seen.
const LEAST = 2; // pixels of the page that stay between two rulings

const between = (number, least, most) => Math.min(Math.max(number, least), most);
const halfway = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const overlap = (cell, [row, column, rows, columns]) =>
  cell.row < row + rows && row < cell.row + cell.rows && cell.column < column + columns && column < cell.column + cell.columns;

export default {
  template: `
<g class="table-grid">
  <g v-for="(table, at) in shown" :key="table.id">
    <polygon v-for="cell in table.cells" :key="cell.number" :class="['cell', { chosen: isIn(table, cell) }]"
      :points="corners(table, cell).join(' ')" :data-cell="cell.number" :data-table="at" />
    <text v-for="place in table.nodes.length - 1" :key="'r' + place" class="label row-number"
      :x="Math.max(middleOf(table, 'row', place)[0], page.width / 50)" :y="middleOf(table, 'row', place)[1]">{{ place }}</text>
    <text v-for="place in table.nodes[0].length - 1" :key="'c' + place" class="label column-number"
      :x="middleOf(table, 'column', place)[0]" :y="middleOf(table, 'column', place)[1]">{{ place }}</text>
    <template v-for="ruling in rulings(table)" :key="ruling.axis + ruling.place">
      <path :class="['ruling', { chosen: isRuling(table, ruling) }]" :d="ruling.path" />
      <path class="ruling-hit" :d="ruling.path" tabindex="0" :data-table="at" :data-axis="ruling.axis"
        :data-place="ruling.place" @focus="choose(table, ruling.axis, ruling.place)" />
    </template>
    <template v-if="chosen?.axis && chosen.table === table.id">
      <circle v-for="(point, end) in ends" :key="'e' + end" class="handle" :cx="point[0]" :cy="point[1]" :data-end="end" />
    </template>
  </g>
</g>`,
  props: {
    tables: Array, // {id, version, nodes: rows of points, cells: [number, row, column, rows, columns]}
    page: Object, // {number, width, height}
  },
  emits: ["edit"],
  data() {
    return {
      chosen: null, // {table, axis, place}: a ruling, or {table, from, to}: cells by row and column of two corners
      moved: null, // the points of the chosen ruling: moved, not answered yet
    };
  },
  computed: {
    shown() {
      return this.tables.map((table) => {
        const cells = table.cells.map(([number, row, column, rows, columns]) => ({ number, row, column, rows, columns }));
        const isMoved = this.moved && this.chosen?.table === table.id;
        const nodes = isMoved ? this.withPoints(table.nodes, this.chosen, this.moved) : table.nodes;
        return { ...table, cells, nodes };
      });
    },
    table() {
      return this.shown.find((table) => table.id === this.chosen?.table);
    },
    ends() {
      const points = this.pointsOf(this.table.nodes, this.chosen);
      return [points[0], points.at(-1)];
    },
    // row, column, rows and columns that are chosen
    area() {
      if (!this.chosen?.from || !this.table) return null;
      const [from, to] = [this.chosen.from, this.chosen.to].map(([row, column]) => this.cellAt(row, column));
      if (!from || !to) return null;
      const [row, column] = [Math.min(from.row, to.row), Math.min(from.column, to.column)];
      const bottom = Math.max(from.row + from.rows, to.row + to.rows);
      return [row, column, bottom - row, Math.max(from.column + from.columns, to.column + to.columns) - column];
    },
    hint() {
      if (!this.tables.length) return "noTables";
      return this.chosen?.axis ? "ruling" : this.area ? "cells" : "table";
    },
    cellsChosen() {
      return this.area ? this.table.cells.filter((cell) => overlap(cell, this.area)) : [];
    },
  },
  watch: {
    tables() {
      if (!this.chosen) return;
      const { axis, place } = this.chosen;
      if (!this.table || (axis ? place > this.last(axis) : !this.area)) this.chosen = null;
    },
  },
  methods: {
    // Geometry

    pointsOf(nodes, { axis, place }) {
      return axis === "row" ? nodes[place] : nodes.map((row) => row[place]);
    },
    withPoints(nodes, { axis, place }, points) {
      if (axis === "row") return nodes.with(place, points);
      return nodes.map((row, at) => row.with(place, points[at]));
    },
    last(axis) {
      return (axis === "row" ? this.table.nodes.length : this.table.nodes[0].length) - 1;
    },
    corners({ nodes }, { row, column, rows, columns }) {
      const [bottom, right] = [row + rows, column + columns];
      return [nodes[row][column], nodes[bottom][column], nodes[bottom][right], nodes[row][right]];
    },
    middleOf({ nodes }, axis, number) {
      return axis === "row" ? halfway(nodes[number - 1][0], nodes[number][0]) : halfway(nodes[0][number - 1], nodes[0][number]);
    },
    // each ruling without the parts that are inside of cells
    rulings({ nodes, cells }) {
      const inside = new Set();
      for (const { row, column, rows, columns } of cells) {
        for (let y = row; y < row + rows; y++)
          for (let x = column + 1; x < column + columns; x++) inside.add(`column ${x} ${y}`);
        for (let x = column; x < column + columns; x++)
          for (let y = row + 1; y < row + rows; y++) inside.add(`row ${y} ${x}`);
      }
      const all = [];
      for (const [axis, count] of [["column", nodes[0].length], ["row", nodes.length]])
        for (let place = 0; place < count; place++) {
          const points = this.pointsOf(nodes, { axis, place });
          const parts = points.slice(1).map((end, at) => [points[at], end, `${axis} ${place} ${at}`]);
          const drawn = parts.filter(([, , key]) => !inside.has(key)).map(([begin, end]) => `M${begin}L${end}`);
          if (drawn.length) all.push({ axis, place, path: drawn.join("") });
        }
      return all;
    },

    // Choosing

    isRuling(table, { axis, place }) {
      return this.chosen?.table === table.id && this.chosen.axis === axis && this.chosen.place === place;
    },
    isIn(table, cell) {
      return this.area !== null && this.table?.id === table.id && overlap(cell, this.area);
    },
    cellAt(row, column) {
      return this.table.cells.find((cell) => overlap(cell, [row, column, 1, 1]));
    },
    choose(table, axis, place) {
      if (this.isRuling(table, { axis, place })) return;
      this.moved = null;
      this.chosen = { table: table.id, axis, place };
    },
    chooseCell(table, number, extend) {
      const { row, column } = table.cells.find((cell) => cell.number === number);
      const from = extend && this.chosen?.from && this.chosen.table === table.id ? this.chosen.from : [row, column];
      this.chosen = { table: table.id, from, to: [row, column] };
    },
    stepCell([dx, dy], extend) {
      const { from, to } = this.chosen;
      const cell = this.cellAt(...to);
      const row = dy > 0 ? cell.row + cell.rows : cell.row + dy;
      const column = dx > 0 ? cell.column + cell.columns : cell.column + dx;
      if (this.cellAt(row, column)) this.chosen = { ...this.chosen, from: extend ? from : [row, column], to: [row, column] };
    },

    // What the view hands on

    down({ table, axis, place, end }) {
      // returns what a drag from here moves: a ruling, or its end
      if (end !== undefined) return { end: Number(end) };
      if (axis === undefined) return null;
      this.choose(this.shown[Number(table)], axis, Number(place));
      return {};
    },
    clicked({ table, cell, axis, end }, extend) {
      if (cell) this.chooseCell(this.shown[Number(table)], Number(cell), extend);
      else if (!axis && end === undefined) this.chosen = null;
    },
    // rulings move across only: up and down, or left and right
    drag(by, end) {
      const { nodes } = this.tables.find((table) => table.id === this.chosen.table);
      const points = this.pointsOf(nodes, this.chosen);
      const [first, last] = [points[0], points.at(-1)];
      const across = Math.abs(last[0] - first[0]) > Math.abs(last[1] - first[1]) ? 1 : 0;
      const fixed = end === 0 ? last : first;
      const length = Math.max(distance(first, last), 1);
      const shares = points.map((point) => (end === undefined ? 1 : distance(point, fixed) / length));
      const shift = this.possibleShift(nodes, points, across, shares, by[across]);
      this.moved = points.map((point, at) => point.with(across, Math.round(point[across] + shares[at] * shift)));
    },
    possibleShift(nodes, points, across, shares, shift) {
      const { axis, place } = this.chosen;
      const beside = [place - 1, place + 1].map((other) => this.pointsOf(nodes, { axis, place: other }));
      const [before, after] = beside.map((other) => other?.every(Boolean) && other);
      const size = across ? this.page.height : this.page.width;
      const isRising = after ? after[0][across] > points[0][across] : before[0][across] < points[0][across];
      const [lower, upper] = isRising ? [before, after] : [after, before];
      const room = (at, other, edge) => (other ? other[at][across] + (edge ? -LEAST : LEAST) : edge) - points[at][across];
      const moving = points.map((_, at) => at).filter((at) => shares[at] > 0.01);
      const least = Math.max(...moving.map((at) => room(at, lower, 0) / shares[at]));
      const most = Math.min(...moving.map((at) => room(at, upper, size - 1) / shares[at]));
      return between(shift, Math.min(least, 0), Math.max(most, 0));
    },
    drop() {
      if (this.moved) this.send("moveRuling", { points: this.moved });
    },
    move(by) {
      if (!this.chosen?.axis) return;
      this.drag(by);
      this.drop();
    },
    answered(isDragging) {
      if (!isDragging) this.moved = null;
    },
    possible(name) {
      if (name === "joinCells") return this.cellsChosen.length > 1;
      if (name === "splitCells") return this.cellsChosen.some((cell) => cell.rows > 1 || cell.columns > 1);
      if (name === "removeRuling" || name === "addRuling") return Boolean(this.chosen?.axis);
      if (name === "removeTable") return Boolean(this.chosen) || this.tables.length === 1;
      return name !== "drawRuling" || this.tables.length > 0;
    },
    run(name) {
      if (!this.possible(name)) return;
      if (name === "removeTable") this.chosen ??= { table: this.tables[0].id };
      if (name === "addRuling") this.addBeside();
      else this.send(name, name === "removeTable" || name === "removeRuling" ? {} : { cells: this.area });
      if (name.startsWith("remove")) this.chosen = null;
    },
    // halfway to the next ruling, or from the last one to that before it
    addBeside() {
      const { axis, place } = this.chosen;
      const band = Math.min(place, this.last(axis) - 1);
      const [first, second] = [band, band + 1].map((other) => this.pointsOf(this.table.nodes, { axis, place: other }));
      this.send("addRuling", { at: halfway(halfway(first[0], second[0]), halfway(first[1], second[1])) });
    },
    // a ruling along a stroke: between rows if it runs as those do
    draw(start, end) {
      const at = halfway(start, end);
      const near = this.shown.find((table) => this.isAround(table, at)) ?? this.shown[0];
      const { nodes } = near;
      const along = (first, last) => {
        const [x, y] = [last[0] - first[0], last[1] - first[1]];
        return Math.abs((end[0] - start[0]) * x + (end[1] - start[1]) * y) / Math.max(Math.hypot(x, y), 1);
      };
      const axis = along(nodes[0][0], nodes[0].at(-1)) > along(nodes[0][0], nodes.at(-1)[0]) ? "row" : "column";
      this.chosen = { table: near.id };
      this.send("addRuling", { axis, at });
    },
    isAround({ nodes }, [x, y]) {
      const border = [nodes[0][0], nodes.at(-1)[0], nodes.at(-1).at(-1), nodes[0].at(-1)];
      const [across, down] = [border.map((point) => point[0]), border.map((point) => point[1])];
      return x >= Math.min(...across) && x <= Math.max(...across) && y >= Math.min(...down) && y <= Math.max(...down);
    },
    send(what, details) {
      const { id, version } = this.tables.find((table) => table.id === this.chosen.table);
      const { axis, place } = this.chosen;
      this.$emit("edit", what, { table: [id, version], axis, place, ...details });
    },
  },
};
