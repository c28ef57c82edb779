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
    const focused = place.contains(document.activeElement) && document.activeElement.dataset.letter;
    place.innerHTML = html;
    if (focused) place.querySelector(`[data-letter="${focused}"]`)?.focus();
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
  const answer = await fetch(`view?ago=${back}`);
  if (mine === asked && answer.ok) show(await answer.json());
}

document.onclick = async (event) => {
  const number = event.target.dataset.letter;
  if (!number) return;
  const answer = await fetch(`dead-letter?number=${number}`);
  if (answer.ok) show(await answer.json());
  else element("dead_letter").textContent = await answer.text();
  const letter = element("letter");
  letter.onclose = () => document.querySelector(`[data-letter="${number}"]`)?.focus();
  letter.showModal();
};
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
