// Keeps a page up to date.  The server reports that something has changed since the page's mark; the page then fetches the
// changed elements, which have ids.  An existing element is changed into the new one, node by node, so that focus,
// selection, scroll and open details stay; a new one is added to the element named by data-into.  Where the server does not
// know the changes, it answers with the whole page.

import { tell } from "./times.js";

const $ = (id) => document.getElementById(id);
const all = (what, root = document) => [...root.querySelectorAll(what)];
const body = document.body;
const HIDDEN_FOR = 10_000; // a tab out of sight gives its connection back: browsers allow six to one host
const LOG_LINES = 1000;
const mine = (node, name) => name === "open" || (name === "hidden" && node.matches("button")); // not set by the server
let mark = body.dataset.mark;
let fetching = false;
let again = false;
let source = null;
let sleep = 0;
const renewed = () => dispatchEvent(new Event("renewed")); // new rows must be filtered, too

const at = (name) => {
  const url = new URL(location.href);
  url.searchParams.set(name, mark);
  return url;
};

function connect() {
  if (source || !mark) return;
  source = new EventSource(at("live"));
  source.onmessage = renew;
  source.onopen = () => body.removeAttribute("data-offline");
  source.onerror = () => {
    body.setAttribute("data-offline", "");
    if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
    close(); // refused: signed out, or too many streams
    setTimeout(renew, 10_000 + 10_000 * Math.random());
  };
}

function close() {
  source?.close();
  source = null;
}

async function renew() {
  again = fetching;
  if (fetching) return;
  fetching = true;
  const asked = mark;
  const answer = await fetch(at("since"), { headers: { Accept: "text/html" } }).catch(() => null);
  const html = answer?.ok ? await answer.text().catch(() => null) : null;
  fetching = false;
  if ([401, 403, 404].includes(answer?.status)) return location.reload(); // signed out, or removed
  if (html === null) return void setTimeout(renew, 3000);
  if (mark !== asked) return renew(); // a form has shown another state meanwhile
  const reached = answer.headers.get("Spyweb-Mark");
  if (!reached) return show(html);
  mark = reached;
  swap(html);
  if (!document.hidden) connect();
  if (again) renew();
}

// Changes the page into another state of it, and follows it from there.
export function show(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  tell(all("time", page));
  close();
  for (const id of ["title", "icon", "started", "pages", "main"]) morph($(id), page.getElementById(id));
  mark = page.body.dataset.mark;
  renewed();
  if (!document.hidden) connect();
}

function swap(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  tell(all("time", template.content));
  const followed = all(".log").filter((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 40);
  for (const fresh of [...template.content.children]) {
    const old = $(fresh.id);
    if (old) morph(old, fresh);
    else if ($(fresh.dataset.into)) append($(fresh.dataset.into), fresh);
  }
  for (const log of followed) log.scrollTop = log.scrollHeight;
  renewed();
}

function append(log, line) {
  log.append(line);
  while (log.childElementCount > LOG_LINES) log.firstElementChild.remove();
}

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return void old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) return void (old.data = fresh.data);
  if (old === document.activeElement && old.matches("input, select, textarea")) return; // being typed into
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !mine(old, name)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !mine(old, name)) old.removeAttribute(name);
  }
  const named = new Map([...old.children].filter((node) => node.id).map((node) => [node.id, node]));
  let here = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const twin = node.id ? named.get(node.id) : here && !here.id && here.nodeName === node.nodeName ? here : null;
    if (!twin) old.insertBefore(node, here);
    else {
      if (twin === here) here = here.nextSibling;
      else old.moveBefore ? old.moveBefore(twin, here) : old.insertBefore(twin, here); // moveBefore keeps focus
      morph(twin, node);
    }
  }
  for (let next; here; here = next) (next = here.nextSibling), here.remove();
}

addEventListener("visibilitychange", () => {
  clearTimeout(sleep);
  if (document.hidden) sleep = setTimeout(close, HIDDEN_FOR);
  else connect();
});
addEventListener("pagehide", close); // lets the page into the back/forward cache
addEventListener("pageshow", () => document.hidden || connect()); // not in a tab that is opened in the background

for (const log of all(".log")) log.scrollTop = log.scrollHeight;
if (!document.hidden) connect();
