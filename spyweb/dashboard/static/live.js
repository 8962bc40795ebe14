// Keeps a page up to date.  What the server pushes is HTML: elements with ids.  What is there under an id is changed into
// what came, node by node, so that focus, selection, scroll and open details stay; what isn't there yet is added to the
// element named by data-into; data-gone removes.  After a gap that the server can't fill, the page is fetched anew and
// changed in the same way.  What a page is about is not known here.

import { tell } from "./times.js";

const $ = (id) => document.getElementById(id);
const all = (what, root = document) => [...root.querySelectorAll(what)];
const body = document.body;
const HIDDEN_FOR = 10_000; // a tab out of sight gives its connection back: browsers allow six to one host
const LOG_LINES = 1000;
const MINE = new Set(["open", "hidden"]); // set by whoever looks at the page, not by the server
const place = body.dataset.live ? new URL(body.dataset.live, location.href) : null;
let source = null;
let sleep = 0;
const renewed = () => dispatchEvent(new Event("renewed")); // what has come is to be filtered as the rest is

function connect() {
  if (source || !place) return;
  source = new EventSource(place);
  source.addEventListener("html", (event) => {
    place.searchParams.set("since", event.lastEventId);
    swap(event.data);
  });
  source.addEventListener("reset", renew);
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
  close();
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.status === 401) return location.reload(); // signed out
  if (!answer?.ok) return void setTimeout(renew, 3000);
  show(await answer.text());
}

// Changes the page into another state of it, and follows it from there: what was pushed meanwhile may be newer, and comes
// again.
export function show(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  tell(all("time", page));
  close();
  for (const id of ["title", "icon", "pages", "main"]) morph($(id), page.getElementById(id));
  if (place && page.body.dataset.live) place.search = new URL(page.body.dataset.live, location.href).search;
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
    if (fresh.hasAttribute("data-gone")) old?.remove();
    else if (old) morph(old, fresh);
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
    if (old.getAttribute(name) !== value && !MINE.has(name)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !MINE.has(name)) old.removeAttribute(name);
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
