// Enhances pages: forms are sent without leaving the page, lists are filtered at once, keys, the tips of strips.
// Pages work without it: forms post, the server filters, and strips are links.

import { show } from "./live.js";
import { tell } from "./times.js";

const $ = (id) => document.getElementById(id);
const all = (what, root = document) => [...root.querySelectorAll(what)];

// The filter of a list: the same as its form asks the server for, at once.

function filter() {
  const form = $("filter");
  if (!form) return;
  const { q, tag, state } = Object.fromEntries(new FormData(form));
  const word = q.toLowerCase();
  const fits = (row) => (!state || row.dataset.state === state) && (!tag || row.dataset.tags?.split(" ").includes(tag)) && (!word || `${row.id} ${row.textContent}`.toLowerCase().includes(word));
  const pick = (rows) => rows.filter((row) => !(row.hidden = !fits(row))).length;
  $("no-match").hidden = pick([...$(form.dataset.of).children]) > 0;
  const above = $("attention");
  if (above) above.hidden = !pick(all("li[data-state]", above));
}

function filtered(form) {
  filter();
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

addEventListener("input", ({ target }) => {
  if (target.form?.id !== "filter") return;
  if (target.name === "sort") target.form.submit();
  else filtered(target.form);
});

// Forms: sent from here, so that the page stays; a button that asks waits for its answer.

function sure({ ask, sure }) {
  const dialog = $("sure");
  $("sure-question").textContent = ask;
  dialog.querySelector(".harm").textContent = sure;
  dialog.returnValue = "";
  dialog.showModal();
  dialog.querySelector('button[value=""]').focus();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

const busy = new Set(); // buttons whose request is under way

function setBusy(button, on) {
  if (on) busy.add(button);
  else busy.delete(button);
  if (on) button?.setAttribute("aria-disabled", "true"); // not disabled: it keeps the focus
  else button?.removeAttribute("aria-disabled");
}

const bare = (address) => {
  const url = new URL(address);
  url.searchParams.delete("started");
  return url.href;
};

addEventListener("pageshow", () => busy.forEach((button) => setBusy(button, false)));

addEventListener("submit", async (event) => {
  const { target: form, submitter: button } = event;
  if (form.id === "filter") return event.preventDefault(), filtered(form);
  if (form.getAttribute("method") !== "post") return;
  if (busy.has(button)) return event.preventDefault();
  if ("plain" in form.dataset || "plain" in (button?.dataset ?? {})) {
    setBusy(button, true); // the browser leaves the page; where it does not, the button works again
    return void setTimeout(() => setBusy(button, false), 10_000);
  }
  event.preventDefault();
  const sent = new URLSearchParams(new FormData(form, button));
  if (button?.dataset.ask) {
    if (!(await sure(button.dataset))) return;
    sent.set("sure", "yes");
  }
  setBusy(button, true);
  const to = button?.getAttribute("formaction") ?? form.getAttribute("action");
  const answer = await fetch(to, { method: "POST", body: sent, headers: { Accept: "text/html" } }).catch(() => null);
  const page = (await answer?.text().catch(() => "")) ?? "";
  setBusy(button, false);
  if (answer?.ok && bare(answer.url) !== bare(location.href)) return location.assign(answer.url);
  const failed = answer?.ok ? null : new DOMParser().parseFromString(page, "text/html");
  if (!failed) {
    show(page);
    for (const box of all('[form="do"]:checked')) box.checked = false; // else the next button acts on them again
  }
  $("answer").textContent = failed ? (all("h1, .said", failed).map((node) => node.textContent.trim()).join(". ") || "No answer from spyweb") : "";
});

// Keys, the last runs of a job, and small things.

const OFF = "spyweb-no-single-keys"; // for users of speech input, and against keys pressed by mistake

const rows = () => all("main :is(.jobs > li:not([hidden]) a.name, .incidents a.name, tbody th a)");

addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
  if (key.length === 1 && localStorage.getItem(OFF)) return;
  const search = document.querySelector('main input[type="search"]');
  const row = target.closest?.(".jobs > li");
  if (key === "/" && search) search.focus();
  else if (key === "?") $("help").showModal();
  else if (key === "g") location.assign(document.querySelector(".brand").href);
  else if (key === "j" || key === "k") {
    const links = rows();
    const at = links.indexOf(document.activeElement) + (key === "j" ? 1 : -1);
    links[Math.max(0, Math.min(at, links.length - 1))]?.focus();
  } else if (row && (key === "ArrowLeft" || key === "ArrowRight")) tip(row.querySelector(".strip"), bar + (key === "ArrowLeft" ? -1 : 1));
  else if (key === "Escape") $("tip").hidden = true;
  else return;
  event.preventDefault();
});

const BARS = 40;
const strips = new Map(); // job's address → its last runs, as fetched
let bar = BARS;

async function tip(strip, wanted) {
  bar = Math.max(0, Math.min(wanted, BARS - 1));
  const at = bar;
  const link = strip.closest("a");
  if (!strips.has(link.href)) {
    strips.set(link.href, fetch(`${link.href}/strip`).then((answer) => (answer.ok ? answer.text() : "")));
    setTimeout(() => strips.delete(link.href), 5000);
  }
  const runs = document.createElement("template");
  runs.innerHTML = await strips.get(link.href);
  if (at !== bar) return; // the pointer has moved on
  const list = runs.content.querySelectorAll("li");
  const run = list[at - BARS + list.length];
  const box = $("tip");
  box.hidden = !run;
  if (!run) return;
  tell(all("time", run));
  box.replaceChildren(...run.childNodes);
  link.dataset.run = run.dataset.href ?? "";
  const { left, top } = strip.getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(left + at * 6, innerWidth - box.offsetWidth - 16)) + scrollX}px`;
  box.style.top = `${top + scrollY - box.offsetHeight - 8}px`;
}

addEventListener("pointermove", ({ target, clientX }) => {
  const strip = target.closest?.(".jobs .runs")?.querySelector(".strip");
  if (strip) tip(strip, Math.floor((clientX - strip.getBoundingClientRect().left) / 6));
  else if (!target.closest?.("#tip")) (bar = BARS), ($("tip").hidden = true);
});

addEventListener("click", (event) => {
  const { target } = event;
  const chip = target.closest("[data-state-chip]");
  const run = target.closest(".jobs .runs")?.dataset.run;
  const copy = target.closest("[data-copy]");
  if (chip) {
    event.preventDefault();
    $("filter").elements.state.value = chip.dataset.stateChip;
    for (const each of chip.parentElement.children) each === chip ? each.setAttribute("aria-current", "true") : each.removeAttribute("aria-current");
    filtered($("filter"));
  } else if (run) event.preventDefault(), location.assign(run);
  else if (copy) navigator.clipboard.writeText($(copy.dataset.copy).textContent).then(() => (copy.textContent = "Copied"));
});

addEventListener("renewed", filter);
tell(all("time"));
for (const button of all("[data-copy]")) button.hidden = !navigator.clipboard;
filter();
$("single-keys").addEventListener("change", ({ target }) => (target.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")));
$("shortcuts").addEventListener("click", () => $("help").showModal());
$("shortcuts").hidden = false;
$("single-keys").checked = !localStorage.getItem(OFF);
