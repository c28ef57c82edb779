// Puts the parts that the server has drawn in their places; draws and decides nothing itself.
"use strict";
const element = (id) => document.getElementById(id);
const ago = element("ago");
let playing = null;

const shown = new Map();
function show(parts) {
  for (const [id, html] of Object.entries(parts)) {
    if (shown.get(id) === html) continue;
    shown.set(id, html);
    const place = element(id);
    const focused = place.contains(document.activeElement) && document.activeElement.dataset.open;
    place.innerHTML = html;
    if (focused) button(place, focused)?.focus();
    // The content security policy allows no style in HTML.
    for (const label of place.querySelectorAll("[data-top]")) label.style.top = `${label.dataset.top}px`;
  }
}

const live = new EventSource("live");
let lost = null;
live.onopen = () => { clearTimeout(lost); lost = null; element("connection").textContent = ""; };
live.onerror = () => {
  // The server ends each stream after some seconds, and the browser comes back at once.
  lost ??= setTimeout(() => { element("connection").textContent = "No connection; trying again."; }, 2000);
};
live.onmessage = (event) => { if (Number(ago.value) === 0) show(JSON.parse(event.data)); };

let asked = 0;
async function look() {
  const back = -Number(ago.value);
  element("back").textContent = back ? `${back} s back` : "live";
  element("right").textContent = back ? `${back} s ago` : "now";
  const mine = ++asked;
  const response = await fetch(`view?ago=${back}`);
  if (mine === asked && response.ok) show(await response.json());
}

// A button names what it opens, by the path that returns it.
const button = (place, path) => [...place.querySelectorAll("[data-open]")].find((each) => each.dataset.open === path);
const letter = element("letter");
let opener = "", opened = 0;
document.onclick = async (event) => {
  const path = event.target.dataset.open;
  if (!path) return;
  if (!letter.open) { opener = path; letter.showModal(); }
  const mine = ++opened;
  show({ dead_letter: "<h2 id=dead-letter-title>Reading …</h2>" });
  const response = await fetch(path).catch(() => null);
  if (mine !== opened) return;
  if (response?.ok) show(await response.json());
  else {
    show({ dead_letter: "<h2 id=dead-letter-title>Not shown</h2><p></p>" });
    element("dead_letter").querySelector("p").textContent = response ? await response.text() : "No connection.";
  }
};
letter.onclose = () => button(document, opener)?.focus();
element("close").onclick = () => element("letter").close();

function play(on) {
  clearInterval(playing);
  playing = on ? setInterval(() => {
    // Ten seconds a second: time goes on meanwhile.
    ago.value = Math.min(0, Number(ago.value) + 2);
    if (Number(ago.value) === 0) play(false);
    look();
  }, 200) : null;
  element("play").setAttribute("aria-pressed", String(on));
  element("play").textContent = on ? "Pause" : "Replay";
}

ago.oninput = look;
element("play").onclick = () => {
  if (playing === null && Number(ago.value) === 0) ago.value = -600;
  play(playing === null);
};
element("now").onclick = () => { play(false); ago.value = 0; look(); };
