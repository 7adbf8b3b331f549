// The rule of dpkit.features.Hashed in another language: node hashed_by_rule.mjs VECTORS prints a row for every case.
import { readFileSync } from "node:fs";

const rotated = (x, r) => (x << r) | (x >>> (32 - r));

const final = (h) => {
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
};

function murmur3(text, seed) {
  if (!text.isWellFormed()) throw new Error("a text must have a UTF-8 form");
  const bytes = new TextEncoder().encode(text);
  const mixed = (k) => Math.imul(rotated(Math.imul(k, 0xcc9e2d51), 15), 0x1b873593);
  let h = seed | 0;
  let i = 0;
  for (; i + 4 <= bytes.length; i += 4) {
    h ^= mixed(bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24));
    h = Math.imul(rotated(h, 13), 5) + 0xe6546b64;
  }
  let k = 0;
  for (let j = bytes.length - 1; j >= i; j--) k = (k << 8) | bytes[j];
  if (i < bytes.length) h ^= mixed(k);
  return final(h ^ bytes.length);
}

const escaped = (key) => key.replace(/[~/=[]/g, (c) => "~" + "~/=[".indexOf(c));

function* features(value, path, ranges) {
  if (value === null || typeof value === "boolean") yield [`${path}=${value}`, 1];
  else if (typeof value === "string") yield [`${path}="${value}`, 1];
  else if (Array.isArray(value)) {
    for (const [i, one] of value.entries()) {
      yield* features(one, `${path}[${typeof one === "number" ? i : ""}]`, ranges);
    }
  } else if (typeof value === "object") {
    for (const [key, one] of Object.entries(value)) yield* features(one, `${path}/${escaped(key)}`, ranges);
  } else {
    let x = value;
    if (!Number.isFinite(x)) throw new Error("numbers must be finite");
    if (Object.hasOwn(ranges, path)) {
      const [low, high] = ranges[path];
      x = Math.min(Math.max(x, low), high);
      x = (x - low + (x - high)) / (high - low);
    }
    yield [path, Math.min(Math.max(x, -1), 1)];
  }
}

const length = (values) => Math.max(1, Math.hypot(...values));

function rowOf(row, { dim, namespaces, interactions, ranges, seed }) {
  const parts = {};
  const terms = [];
  for (const space of namespaces) {
    const found = space in row ? [...features(row[space], escaped(space), ranges)] : [];
    const size = length(found.map(([, v]) => v));
    parts[space] = found.map(([name, v]) => [murmur3(name, seed), v / size]);
    terms.push(...parts[space]);
  }
  for (const [a, b] of interactions) {
    for (const [f, v] of parts[a]) {
      for (const [g, w] of parts[b]) terms.push([final(Math.imul(f, 0x9e3779b1) ^ g), v * w]);
    }
  }
  const x = new Array(dim).fill(0);
  for (const [h, v] of terms) x[(h % 2 ** 31) % dim] += h >= 2 ** 31 ? -v : v;
  const blocks = Math.sqrt(namespaces.length + interactions.length);
  const scaled = x.map((v) => v / blocks);
  const size = length(scaled);
  return scaled.map((v) => v / size);
}

const vectors = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(
  JSON.stringify({
    hashes: vectors.hashes.map(({ text, seed }) => murmur3(text, seed)),
    rows: vectors.cases.map((one) => rowOf(one.row, vectors.parameters[one.parameters])),
  }),
);
