// Maps, arrays, strings and buffers that are filled, changed and read at random.
let state = 1;
const number = (below) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * below);
};

const count = 250_000;
const rows = new Map();
for (let n = 0; n < count; n++) rows.set(`key${n}`, { n, text: `value ${n}`.repeat(3), list: [n, n + 1, n + 2] });
for (let n = 0; n < 20_000; n++) {
  const key = `key${number(count)}`;
  const row = rows.get(key);
  if (number(5) === 0) rows.delete(key);
  else if (row) row.list.push(n);
  else rows.set(key, { n, text: "again", list: [] });
}
const bytes = Buffer.alloc(96 << 20);
for (let n = 0; n < bytes.length; n += 512) bytes.writeUInt32LE(Math.imul(n, 2654435761) >>> 0, n);
const words = new Float64Array(4 << 20).map((_, n) => n * 0.5);
let sum = 0;
for (const row of rows.values()) sum += row.n + row.text.length + row.list.reduce((a, b) => a + b, 0);
for (let n = 0; n < 15_000; n++) sum += words[number(words.length)] + bytes.readUInt32LE(number(3 << 16) * 512);
console.log(rows.size, sum);
