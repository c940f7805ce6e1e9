// The page at "/": a chat about pictures over /v1/chat/completions. No framework, no build step, no other host.
import { readEvents } from "./events.js";

const $ = (id) => document.getElementById(id);
const log = $("log"), question = $("question"), composer = $("composer");
const kMaxPictureBytes = 32 << 20;  // of one file, before base64

// What is said so far: {role, text, pictures: [{url, name, width, height}], element}.
let history = [];
let attached = [];        // pictures of the question that is being written
let running = null;       // AbortController of the answer that is being received

// ---- settings: in the browser, the key only for this tab ----------------------------------------------------------

const kSettings = ["system", "temperature", "top-p", "max-tokens", "seed", "keep", "theme"];
const field = (name) => $(`set-${name}`);

function loadSettings() {
  let saved = {};
  try { saved = JSON.parse(localStorage.getItem("triptych") ?? "{}"); } catch { /* written by something else */ }
  for (const name of kSettings) field(name).value = saved[name] ?? "";
  field("key").value = sessionStorage.getItem("triptych-key") ?? "";
  showTheme();
}

function saveSettings() {
  localStorage.setItem("triptych", JSON.stringify(Object.fromEntries(kSettings.map((name) => [name, field(name).value]))));
  sessionStorage.setItem("triptych-key", field("key").value);
  showTheme();
}

function showTheme() {
  const theme = field("theme").value;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

const number = (name) => (field(name).value === "" ? undefined : Number(field(name).value));

function headers() {
  const key = field("key").value;
  return key ? { Authorization: `Bearer ${key}` } : {};
}

// ---- the server's models and state -------------------------------------------------------------------------------

async function showModels() {
  const state = $("state");
  try {
    const response = await fetch("v1/models", { headers: headers() });
    const body = await response.json();
    if (!response.ok) throw new Error(body.error?.message ?? response.statusText);
    $("model").replaceChildren(...body.data.map(({ id }) => new Option(id, id)));
    state.textContent = "ready";
    state.classList.remove("bad");
  } catch (error) {
    state.textContent = `no answer: ${error.message}`;
    state.classList.add("bad");
  }
}

// ---- pictures ----------------------------------------------------------------------------------------------------

const readAsDataUrl = (file) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => failed(reader.error);
  reader.readAsDataURL(file);
});

// The size as shown, turned as the file says; a browser that cannot decode it (TIFF) still sends it.
const sizeOf = (url) => new Promise((done) => {
  const image = new Image();
  image.onload = () => done({ width: image.naturalWidth, height: image.naturalHeight });
  image.onerror = () => done({ width: 0, height: 0 });
  image.src = url;
});

async function attach(files) {
  for (const file of files) {
    if (!file.type.startsWith("image/")) { complain(`${file.name} is not a picture`); continue; }
    if (file.size > kMaxPictureBytes) { complain(`${file.name} is larger than ${kMaxPictureBytes >> 20} MiB`); continue; }
    const url = await readAsDataUrl(file);
    attached.push({ url, name: file.name || "pasted picture", ...(await sizeOf(url)) });
  }
  showAttached();
  question.focus();
}

function showAttached() {
  $("pictures").replaceChildren(...attached.map((picture, index) => {
    const item = document.createElement("li");
    const image = new Image();
    image.src = picture.url;
    image.alt = picture.name;
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", `Remove ${picture.name}`);
    remove.onclick = () => { attached.splice(index, 1); showAttached(); question.focus(); };
    item.append(image, remove);
    return item;
  }));
}

function complain(text) {
  const state = $("state");
  state.textContent = text;
  state.classList.add("bad");
}

// ---- messages ----------------------------------------------------------------------------------------------------

function addMessage(role, text, pictures = []) {
  $("welcome")?.remove();
  const element = $("message").content.firstElementChild.cloneNode(true);
  element.classList.add(role);
  element.querySelector(".who").textContent = role === "user" ? "You" : "Answer";
  element.querySelector(".text").textContent = text;
  element.querySelector(".pictures").append(...pictures.map(pictureElement));
  log.append(element);
  log.scrollTop = log.scrollHeight;
  const message = { role, text, pictures, element };
  history.push(message);
  return message;
}

function pictureElement(picture) {
  const figure = document.createElement("figure"), frame = document.createElement("div");
  frame.className = "frame";
  const image = new Image();
  image.src = picture.url;
  image.alt = picture.name;
  frame.append(image);
  figure.append(frame);
  return figure;
}

// All pictures of the conversation in their order, as the server counts them.
const shownPictures = () => history.flatMap((message) =>
  message.pictures.map((picture, i) => ({ picture, frame: message.element.querySelectorAll(".frame")[i] })));

const kSvg = "http://www.w3.org/2000/svg";

// Boxes and points of an answer, in thousandths of a picture, drawn over it.
function drawBoxes(boxes) {
  const pictures = shownPictures();
  for (const { frame } of pictures) frame.querySelectorAll("svg, .tag").forEach((old) => old.remove());
  for (const box of boxes) {
    const frame = pictures[box.image ?? 0]?.frame;
    const at = box.thousandths ?? [];
    if (!frame || at.length < 2) continue;
    let svg = frame.querySelector("svg");
    if (!svg) {
      svg = document.createElementNS(kSvg, "svg");
      svg.setAttribute("viewBox", "0 0 1000 1000");
      svg.setAttribute("preserveAspectRatio", "none");
      frame.append(svg);
    }
    let shape;
    if (at.length === 2) {
      shape = document.createElementNS(kSvg, "ellipse");
      const { width, height } = frame.getBoundingClientRect();
      set(shape, { class: "point", cx: at[0], cy: at[1], rx: 5000 / Math.max(width, 1), ry: 5000 / Math.max(height, 1) });
    } else {
      shape = document.createElementNS(kSvg, "polygon");
      const corners = at.length === 4 ? [at[0], at[1], at[2], at[1], at[2], at[3], at[0], at[3]] : at;
      set(shape, { class: "shape", points: corners.join(" ") });
    }
    const title = document.createElementNS(kSvg, "title");
    title.textContent = box.label || box.type;
    shape.append(title);
    svg.append(shape);
    if (box.label) {
      const tag = document.createElement("span");
      tag.className = "tag";
      tag.textContent = box.label;
      tag.style.left = `${Math.min(at[0], at[2] ?? at[0]) / 10}%`;
      tag.style.top = `${Math.min(at[1], at[3] ?? at[1]) / 10}%`;
      frame.append(tag);
    }
  }
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

// ---- what an answer cost -----------------------------------------------------------------------------------------

const kStages = [["queue_ms", "waiting"], ["image_decode_ms", "decoding pictures"], ["preprocess_ms", "preparing pictures"],
  ["encode_ms", "vision tower"], ["prefill_ms", "reading the prompt"], ["decode_ms", "writing the answer"]];

function showFigures(message, usage, timings, measured) {
  const rows = [];
  const tokens = (n) => `${n.toLocaleString()} tokens`;
  const ms = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString()} ms`;
  if (usage) {
    const details = usage.prompt_tokens_details ?? {};
    rows.push(["prompt", tokens(usage.prompt_tokens)]);
    if (details.image_tokens) rows.push(["of it pictures", tokens(details.image_tokens)]);
    if (details.cached_tokens) rows.push(["of it known before", tokens(details.cached_tokens)]);
    rows.push(["answer", tokens(usage.completion_tokens)]);
  }
  for (const [key, name] of kStages) if (timings?.[key] !== undefined) rows.push([name, ms(timings[key])]);
  rows.push(["first word here", ms(measured.first)], ["all of it here", ms(measured.all)]);
  const figures = message.element.querySelector(".figures");
  figures.querySelector("tbody").replaceChildren(...rows.map(([name, value]) => {
    const row = document.createElement("tr");
    row.append(...[name, value].map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  }));
  const speed = usage && timings?.decode_ms ? `, ${(usage.completion_tokens / timings.decode_ms * 1000).toFixed(1)} tokens/s` : "";
  figures.querySelector("summary").textContent = `first word after ${ms(measured.first)}${speed}`;
  figures.hidden = false;
}

// ---- asking ------------------------------------------------------------------------------------------------------

function requestBody() {
  const messages = history.map(({ role, text, pictures }) => ({
    role,
    content: pictures.length === 0 ? text
      : [...pictures.map(({ url }) => ({ type: "image_url", image_url: { url } })), { type: "text", text }],
  }));
  const system = field("system").value.trim();
  if (system) messages.unshift({ role: "system", content: system });
  const body = {
    model: $("model").value, messages, stream: true, stream_options: { include_usage: true },
    temperature: number("temperature"), top_p: number("top-p"), max_completion_tokens: number("max-tokens"),
    seed: number("seed"), image_tokens_keep: number("keep"),
  };
  return JSON.stringify(body);  // leaves out what is undefined
}

async function ask(text, pictures) {
  addMessage("user", text, pictures);
  await answer();
}

async function answer() {
  const body = requestBody();
  const message = addMessage("assistant", "");
  const textElement = message.element.querySelector(".text");
  textElement.classList.add("waiting");
  running = new AbortController();
  setRunning(true);
  const start = performance.now();
  let usage, timings, boxes = [], first;
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body, signal: running.signal,
    });
    if (!response.ok) throw new Error(await errorText(response));
    for await (const event of readEvents(response.body)) {
      if (event === "[DONE]") break;
      const chunk = JSON.parse(event);
      if (chunk.error) throw new Error(chunk.error.message);
      const choice = chunk.choices?.[0];
      if (choice?.delta?.content) {
        first ??= performance.now() - start;
        message.text += choice.delta.content;
        const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        textElement.textContent = message.text;
        if (atEnd) log.scrollTop = log.scrollHeight;
      }
      boxes = choice?.boxes ?? choice?.delta?.boxes ?? boxes;
      usage = chunk.usage ?? usage;
      timings = chunk.timings ?? timings;
    }
  } catch (error) {
    if (error.name !== "AbortError") showError(message, error.message);
    else message.element.querySelector(".who").textContent = "Answer, stopped";
  } finally {
    running = null;
    setRunning(false);
    textElement.classList.remove("waiting");
  }
  const all = performance.now() - start;
  if (first !== undefined) showFigures(message, usage, timings, { first, all });
  if (boxes.length > 0) drawBoxes(boxes);
  showTools(message);
}

async function errorText(response) {
  try {
    const { error } = await response.json();
    return error.param ? `${error.message} (${error.param})` : error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

// A question that failed is not part of what is said later.
function showError(message, text) {
  const element = message.element.querySelector(".error");
  element.textContent = text;
  element.hidden = false;
  if (message.text === "") {
    history = history.filter((other) => other !== message);
    message.failed = true;
  }
}

function showTools(message) {
  const tools = message.element.querySelector(".tools");
  tools.hidden = false;
  tools.querySelector(".copy").onclick = () => navigator.clipboard?.writeText(message.text);
  tools.querySelector(".again").onclick = () => {
    if (running) return;
    const index = message.failed ? history.length : history.indexOf(message);
    for (const later of history.slice(index)) later.element.remove();
    history = history.slice(0, index);
    message.element.remove();
    answer();
  };
  log.querySelectorAll(".message .again").forEach((button) => { button.hidden = !tools.contains(button); });
}

function setRunning(isRunning) {
  $("send").hidden = isRunning;
  $("stop").hidden = !isRunning;
  $("new-chat").disabled = isRunning;
  $("state").textContent = isRunning ? "answering" : "ready";
  $("state").classList.remove("bad");
  log.setAttribute("aria-busy", String(isRunning));
  if (!isRunning) question.focus();
}

const stop = () => running?.abort();

function newChat() {
  if (running) return;
  history = [];
  attached = [];
  log.querySelectorAll(".message").forEach((element) => element.remove());
  showAttached();
  question.focus();
}

// ---- events ------------------------------------------------------------------------------------------------------

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value.trim();
  if (running || (text === "" && attached.length === 0)) return;
  const pictures = attached;
  attached = [];
  question.value = "";
  fit();
  showAttached();
  ask(text, pictures);
});

function fit() {
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight + 2}px`;
}

question.addEventListener("input", fit);
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    composer.requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) stop();
  if (event.altKey && event.key === "n") { event.preventDefault(); newChat(); }
  if (event.altKey && event.key === "o") { event.preventDefault(); $("file").click(); }
});
document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length > 0) { event.preventDefault(); attach(files); }
});
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  attach([...(event.dataTransfer?.files ?? [])]);
});
$("attach").onclick = () => $("file").click();
$("file").onchange = () => { attach([...$("file").files]); $("file").value = ""; };
$("stop").onclick = stop;
$("new-chat").onclick = newChat;
$("open-settings").onclick = () => $("settings").showModal();
$("settings").addEventListener("close", () => { saveSettings(); showModels(); });
field("theme").onchange = showTheme;

loadSettings();
showModels();
