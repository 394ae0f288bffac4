// Figures as text, and elements without markup: names are written with textContent only.
const $ = id => document.getElementById(id);

function el(tag, kind, text) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

/// Three digits and a unit; `step` lies between two units.
function scaled(number, step, units) {
  let at = 0;
  while (number >= step * 0.9995 && at < units.length - 1) {
    number /= step;
    at++;
  }
  const digits = number >= 99.95 || Number.isInteger(number) ? 0 : number >= 9.995 ? 1 : 2;
  return number.toFixed(digits) + " " + units[at];
}

const rate = bits => scaled(bits, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
const bytes = count => scaled(count, 1000, ["B", "kB", "MB", "GB", "TB"]);
const delay = ns => ns > 0 ? scaled(ns, 1000, ["ns", "µs", "ms", "s"]) : "–";
/// A count in so many ms, as a number per second.
function each(count, ms) {
  const second = count * 1000 / Math.max(ms, 1);
  return count === 0 ? "0" : second < 9.5 ? String(Math.round(second * 10) / 10) : scaled(Math.round(second), 1000, ["", "k", "M"]).trim();
}

function clock(ms, seconds = true) {
  const two = number => String(number).padStart(2, "0");
  const at = new Date(ms);
  return two(at.getHours()) + ":" + two(at.getMinutes()) + (seconds ? ":" + two(at.getSeconds()) : "");
}

function ago(seconds) {
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.floor(seconds % 86400 / 3600) + " h";
}
