// The chat page: conversation, composer, settings. Text goes in by textContent only.

import { complete, modelName } from "./completion.js";

const KEY = "baton-api-key";
const find = (id) => document.getElementById(id);
const log = find("messages");
const composer = find("composer");
const prompt = find("prompt");
const welcome = find("welcome");
const settings = find("settings");

let history = [];
let running = null; // AbortController of the answer being written

// ---- showing ----------------------------------------------------------------------------------

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function addMessage(role, text) {
  welcome.hidden = true;
  const message = element("article", `message ${role}`);
  message.append(element("span", "hidden", role === "user" ? "You: " : "Answer: "));
  const body = element("div", "text", text);
  message.append(body);
  log.append(message);
  scrollDown();
  return { message, body };
}

function scrollDown() {
  log.scrollTop = log.scrollHeight;
}

// Follows the text only while the reader is at its end.
function append(body, text) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  body.append(text);
  if (atEnd) scrollDown();
}

function addStats(message, { ttftMs, tpotMs, usage, finish, served }) {
  const list = element("dl", "stats");
  const add = (name, title, value) => {
    const row = document.createElement("div");
    row.dataset.stat = name;
    row.title = title;
    row.append(element("dt", "", name), element("dd", "", value));
    list.append(row);
  };
  const ms = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
  if (ttftMs !== null) add("TTFT", "Time to first token", ms(ttftMs));
  if (tpotMs !== null) add("TPOT", "Time per output token after the first", ms(tpotMs));
  if (usage) add("tokens", "Prompt → answer", `${usage.prompt_tokens} → ${usage.completion_tokens}`);
  if (served.decode) {
    const way = served.prefill === "local" ? served.decode : `${served.prefill} → ${served.decode}`;
    add("served by", "Prefill worker → decode worker", way);
  }
  if (finish === "length") add("note", "Settings say how long an answer may be", "cut off, limit reached");
  message.append(list);
  scrollDown();
}

function addError(message, text) {
  const shown = element("p", "error", text);
  shown.setAttribute("role", "alert");
  message.append(shown);
  scrollDown();
}

function setRunning(controller) {
  running = controller;
  find("send").hidden = controller !== null;
  find("stop").hidden = controller === null;
}

// ---- asking -----------------------------------------------------------------------------------

function requestBody() {
  const system = find("system").value.trim();
  const body = { messages: system ? [{ role: "system", content: system }, ...history] : history };
  const temperature = find("temperature").valueAsNumber;
  const maxTokens = find("max-tokens").valueAsNumber;
  if (Number.isFinite(temperature)) body.temperature = temperature;
  if (Number.isFinite(maxTokens)) body.max_tokens = maxTokens;
  return body;
}

async function ask(text) {
  if (running) return;
  const asked = addMessage("user", text);
  history.push({ role: "user", content: text });
  await answer(asked);
}

async function answer(asked) {
  const controller = new AbortController();
  setRunning(controller);
  const { message, body } = addMessage("assistant", "");
  message.classList.add("streaming");
  message.setAttribute("aria-busy", "true");
  let served = {};
  let failure = null;
  try {
    const figures = await complete({
      body: requestBody(),
      key: sessionStorage.getItem(KEY),
      signal: controller.signal,
      onStart: (workers) => (served = workers),
      onText: (piece) => append(body, piece),
    });
    addStats(message, { ...figures, served });
  } catch (error) {
    failure = error;
  }
  message.classList.remove("streaming");
  message.removeAttribute("aria-busy");
  if (running !== controller) return; // a new chat was begun meanwhile
  setRunning(null);
  settle(failure, { asked, message, body });
}

// What stays in the conversation: half an answer does, a question without any doesn't.
function settle(failure, { asked, message, body }) {
  const text = body.textContent;
  if (text) history.push({ role: "assistant", content: text });
  if (failure === null) {
    prompt.focus();
    return;
  }
  if (failure.name === "AbortError") {
    message.append(element("p", "stats", "Stopped."));
  } else if (failure.status !== 401) {
    addError(message, failure.status === undefined ? "The server can't be reached." : failure.message);
  }
  if (!text) {
    const question = history.pop();
    if (failure.status === 401) {
      message.remove();
      asked.message.remove();
      askForKey(failure.message, () => ask(question.content));
      return;
    }
    if (!prompt.value) {
      prompt.value = question.content;
      fitPrompt();
      scrollDown(); // the box has grown over the end of the conversation
    }
  }
  prompt.focus();
}

// ---- key --------------------------------------------------------------------------------------

let afterKey = () => {};

function askForKey(reason, then) {
  afterKey = then;
  find("key-error").textContent = sessionStorage.getItem(KEY) ? reason : "";
  find("key").value = "";
  find("key-dialog").showModal();
}

find("key-form").addEventListener("submit", () => {
  sessionStorage.setItem(KEY, find("key").value);
  showModel();
  afterKey();
});
find("key-cancel").addEventListener("click", () => find("key-dialog").close());

async function showModel() {
  try {
    find("model").textContent = await modelName(sessionStorage.getItem(KEY));
  } catch (error) {
    find("model").textContent = error.status === 401 ? "API key needed" : "not reachable";
    if (error.status === 401 && !find("key-dialog").open) askForKey(error.message, () => {});
  }
}

// ---- composer ---------------------------------------------------------------------------------

function fitPrompt() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || running) return;
  prompt.value = "";
  fitPrompt();
  settings.open = false;
  ask(text);
});

prompt.addEventListener("input", fitPrompt);
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    composer.requestSubmit();
  }
});

find("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || find("key-dialog").open) return;
  if (settings.open) settings.open = false;
  else running?.abort();
});
document.addEventListener("click", (event) => {
  if (!settings.contains(event.target)) settings.open = false;
});

find("new-chat").addEventListener("click", () => {
  const before = running;
  setRunning(null);
  before?.abort();
  history = [];
  log.querySelectorAll(".message").forEach((message) => message.remove());
  welcome.hidden = false;
  prompt.focus();
});

find("suggestions").addEventListener("click", (event) => {
  if (event.target instanceof HTMLButtonElement) ask(event.target.textContent);
});

showModel();
