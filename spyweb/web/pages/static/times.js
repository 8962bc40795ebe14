// Moments in the zone of the browser, in the words of spyweb/web/pages/words.py, and countdowns.

const all = (what, root = document) => root.querySelectorAll(what);

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const AGO = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
const two = (number) => String(number).padStart(2, "0");
const skew = Number(document.body.dataset.now) - Date.now(); // a clock that is off shows wrong countdowns; a slow page is not meant
const now = () => Date.now() + (Math.abs(skew) > 5000 ? skew : 0);

function duration(seconds) {
  const at = Math.max(0, UNITS.findIndex(([, size]) => seconds >= size));
  const [unit, size] = UNITS[at];
  const [less, rest] = at < 3 ? [UNITS[at + 1][0], Math.floor((seconds % size) / UNITS[at + 1][1])] : ["", 0];
  return `${Math.floor(seconds / size)}\u00a0${unit}` + (rest ? ` ${rest}\u00a0${less}` : "");
}

function format(date, as) {
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const away = (date - now()) / 1000;
  if (as === "until" || as === "in") return away < 1 ? "now" : (as === "in" ? "in " : "") + duration(Math.floor(away));
  if (as === "ago") {
    const [unit, size] = AGO.find(([, size]) => -away >= size) ?? [];
    return unit ? `${Math.floor(-away / size)}\u00a0${unit} ago` : "just now";
  }
  if (as === "since") return away > -1 ? "a moment" : duration(Math.floor(-away));
  if (as === "exact") return `${clock}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  if (as === "clock") return clock;
  if (as === "day") return `${date.getDate()}\u00a0${MONTHS[date.getMonth()]}`;
  const today = new Date(now());
  const days = Math.round((new Date(date).setHours(0, 0, 0, 0) - new Date(today).setHours(0, 0, 0, 0)) / 86400e3);
  if (days === 0) return `${clock}:${two(date.getSeconds())}`;
  if (Math.abs(days) === 1) return `${days > 0 ? "tomorrow" : "yesterday"} ${clock}`;
  const day = `${date.getDate()}\u00a0${MONTHS[date.getMonth()]}`;
  return date.getFullYear() === today.getFullYear() ? `${day} ${clock}` : `${day}\u00a0${date.getFullYear()}`;
}

export function tell(times) {
  for (const time of times) {
    const date = new Date(time.dateTime);
    const text = isNaN(date) ? "" : format(date, time.dataset.as);
    if (text && time.textContent !== text) time.textContent = text;
  }
}

setInterval(() => document.hidden || tell(all('time:is([data-as="until"], [data-as="in"], [data-as="since"], [data-as="ago"])')), 1000);


// The daemon's own time, as the tooltip of a moment.

const daemons = new Intl.DateTimeFormat("en-GB", { timeZone: document.body.dataset.zone, dateStyle: "full", timeStyle: "long" });

addEventListener("pointerover", ({ target }) => {
  const time = target.closest?.("time");
  if (time && !isNaN(new Date(time.dateTime))) time.title = daemons.format(new Date(time.dateTime));
});
