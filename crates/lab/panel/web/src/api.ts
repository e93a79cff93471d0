// Requests to the server that served this page.
import type {
  BuiltInExperiment,
  NetworkPreset,
  RunDetails,
  RunPage,
  RunPrediction,
  RunQueue,
  RunRequest,
  Session,
  Template,
} from "./types";

/** The server refused a request, or did not answer. */
export class ApiError extends Error {
  constructor(
    message: string,
    /** 0 if the server did not answer. */
    readonly status: number,
    /** The part of the request that is wrong. */
    readonly field: string | null,
  ) {
    super(message);
  }
}

/** Is called when the server does not know this browser. */
let onUnknown = () => {};

export function setUnknownHandler(handler: () => void): void {
  onUnknown = handler;
}

async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const init: RequestInit = { method };
  const headers: Record<string, string> = {};
  // Another page cannot send this header, so the server knows that it is this page that asks.
  if (method !== "GET") headers["x-sunder"] = "1";
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    headers["content-type"] = "application/json";
  }
  init.headers = headers;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is `sunder lab serve` still running?", 0, null);
  }
  if (response.ok) return response;
  if (response.status === 401) onUnknown();
  const refusal: { error?: string; field?: string } = await response.json().catch(() => ({}));
  const message = refusal.error ?? `The server answered with status ${response.status}.`;
  throw new ApiError(message, response.status, refusal.field ?? null);
}

async function json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await request(method, path, body, signal)).json()) as T;
}

const run = (id: string) => `/api/runs/${encodeURIComponent(id)}`;

export const api = {
  session: () => json<Session>("GET", "/api/session"),
  login: (name: string, password: string) => request("POST", "/api/session", { name, password }),
  logout: () => request("DELETE", "/api/session"),
  acceptInvitation: (secret: string, password: string) => request("POST", "/api/invitation", { secret, password }),
  changePassword: (old: string, changed: string) => request("PUT", "/api/password", { old, new: changed }),
  templates: () => json<Template[]>("GET", "/api/templates"),
  networks: () => json<NetworkPreset[]>("GET", "/api/networks"),
  experiments: () => json<BuiltInExperiment[]>("GET", "/api/experiments"),
  predict: (body: RunRequest) => json<RunPrediction>("POST", "/api/predict", body),
  start: (body: RunRequest) => json<{ id: string }>("POST", "/api/runs", body),
  toml: async (body: RunRequest) => (await request("POST", "/api/toml", body)).text(),
  queue: () => json<RunQueue>("GET", "/api/queue"),
  runs: (query: { limit: number; before?: string; search: string }) => {
    const parameters = new URLSearchParams({ limit: String(query.limit), search: query.search });
    if (query.before) parameters.set("before", query.before);
    return json<RunPage>("GET", `/api/runs?${parameters}`);
  },
  run: (id: string) => json<RunDetails>("GET", run(id)),
  eventsPath: (id: string) => `${run(id)}/events`,
  file: async (id: string, name: string) => (await request("GET", api.filePath(id, name))).text(),
  filePath: (id: string, name: string) => `${run(id)}/files/${encodeURIComponent(name)}`,
  stop: (id: string) => request("POST", `${run(id)}/stop`),
  resume: (id: string) => request("POST", `${run(id)}/resume`),
  annotate: (id: string, note: string) => request("PATCH", run(id), { note }),
  remove: (id: string) => request("DELETE", run(id)),
  /** Makes an address by which others can open the run, and nothing else. */
  link: (id: string) => json<{ url: string }>("POST", `${run(id)}/link`),
  withdrawLink: (id: string) => request("DELETE", `${run(id)}/link`),
  plan: <T>(body: unknown, signal: AbortSignal) => json<T>("POST", "/api/plan", body, signal),
  surface: <T>(body: unknown, signal: AbortSignal) => json<T>("POST", "/api/plan/surface", body, signal),
  front: <T>(body: unknown, signal: AbortSignal) => json<T>("POST", "/api/plan/front", body, signal),
  live: <T>() => json<T>("GET", "/api/live"),
};
