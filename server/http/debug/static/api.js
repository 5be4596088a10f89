// Requests to the server that the page came from, with the operator's key where there is one.

const NAME = "radix-operator-key";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function key() {
  return sessionStorage.getItem(NAME) || "";
}

export function setKey(value) {
  if (value) sessionStorage.setItem(NAME, value);
  else sessionStorage.removeItem(NAME);
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  let message = `${path} answered ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // the status says enough
  }
  throw new ApiError(response.status, message);
}

export async function get(path) {
  return (await request(path)).json();
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

// Calls onEvent with each event's JSON until the stream or the signal ends. EventSource cannot send
// a key, so the stream is read with fetch.
export async function stream(path, signal, onEvent) {
  const response = await request(path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const text = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (text.startsWith("data: ")) onEvent(JSON.parse(text.slice(6)));
    }
  }
}
