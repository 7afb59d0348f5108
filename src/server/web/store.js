// What the browser keeps: conversations and settings in localStorage (one key per conversation, so
// that two tabs do not overwrite each other's), pictures in IndexedDB, which has room for them.
const PREFIX = 'cedra.chat.';
const SETTINGS = 'cedra.settings';
const KEY = 'cedra.key';

export const defaults = {
  model: '', thinking: true, effort: 75, temperature: '', maxTokens: '', system: '', tools: '',
  theme: '',
};

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function loadSettings() {
  return { ...defaults, ...parsed(localStorage.getItem(SETTINGS)) };
}

export function saveSettings(settings) {
  localStorage.setItem(SETTINGS, JSON.stringify(settings));
}

// The key lives as long as the tab, unless it is to be remembered.
export function loadKey() {
  return { key: sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? '',
    kept: localStorage.getItem(KEY) !== null };
}

export function saveKey(key, keep) {
  sessionStorage.setItem(KEY, key);
  if (keep && key) localStorage.setItem(KEY, key);
  else localStorage.removeItem(KEY);
}

export function newId() {
  return Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
}

export function newChat() {
  return { id: newId(), title: '', updated: Date.now(), messages: [] };
}

// Newest first; without their messages' contents being looked at.
export function listChats() {
  const chats = [];
  for (let i = 0; i < localStorage.length; i += 1) {
    const name = localStorage.key(i);
    if (!name.startsWith(PREFIX)) continue;
    const chat = parsed(localStorage.getItem(name));
    if (chat && Array.isArray(chat.messages)) chats.push(chat);
  }
  return chats.sort((a, b) => b.updated - a.updated);
}

export function loadChat(id) {
  const chat = parsed(localStorage.getItem(PREFIX + id));
  return chat && Array.isArray(chat.messages) ? chat : null;
}

// False if the browser's room is used up.
export function saveChat(chat) {
  try {
    localStorage.setItem(PREFIX + chat.id, JSON.stringify(chat));
    return true;
  } catch {
    return false;
  }
}

export async function deleteChat(chat) {
  localStorage.removeItem(PREFIX + chat.id);
  const images = chat.messages.flatMap((message) => message.images ?? []);
  for (const image of images) await pictures('readwrite', (store) => store.delete(image.id));
}

let database = null;
function open() {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('cedra', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('pictures');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return database;
}

async function pictures(mode, act) {
  const transaction = (await open()).transaction('pictures', mode);
  return new Promise((resolve, reject) => {
    const request = act(transaction.objectStore('pictures'));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

export const putPicture = (id, url) => pictures('readwrite', (store) => store.put(url, id));
// A data URL; undefined if this browser has it no longer.
export const getPicture = (id) => pictures('readonly', (store) => store.get(id));
