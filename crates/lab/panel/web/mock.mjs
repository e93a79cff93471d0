// A server with made-up data, to develop the page without Rust and to make pictures of it:
//   npm run build && npm run mock
// It serves dist and answers the interface of `sunder lab serve` at http://127.0.0.1:8097/. With
// an argument, it listens on that port.
import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { live } from "./mock/live.mjs";
import { front, plan, surface } from "./mock/plan.mjs";
import * as runs from "./mock/runs.mjs";
import { experiments, networks, templates } from "./mock/templates.mjs";

const dist = join(dirname(fileURLToPath(import.meta.url)), "dist");
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

function sendJson(response, status, document) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(document));
}

function sendText(response, name, text) {
  const headers = { "content-type": "text/plain; charset=utf-8" };
  if (name) headers["content-disposition"] = `attachment; filename="${name}"`;
  response.writeHead(200, headers);
  response.end(text);
}

function sendAsset(response, path) {
  const file = join(dist, path === "/" ? "index.html" : path);
  if (!file.startsWith(dist) || !existsSync(file)) return sendJson(response, 404, { error: "there is no such file" });
  response.writeHead(200, {
    "content-type": `${TYPES[extname(file)] ?? "text/plain"}; charset=utf-8`,
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
  });
  createReadStream(file).pipe(response);
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length > 0 ? JSON.parse(Buffer.concat(chunks).toString()) : {};
}

async function answer(request, response) {
  const url = new URL(request.url, "http://localhost");
  const [, top, ...parts] = url.pathname.split("/");
  if (top !== "api") return sendAsset(response, url.pathname);
  const body = await bodyOf(request);
  const name = `${request.method} ${parts[0]}${parts.length > 1 ? "/" : ""}${parts[0] === "runs" ? parts.slice(2, 3) : parts.slice(1)}`;
  const id = parts[1];
  // A page that was opened by a link to a run gets nothing else.
  const guest = new URL(request.headers.referer ?? "http://localhost").searchParams.get("run");
  const isReadable = parts[0] === "templates" || (parts[0] === "runs" && id === guest);
  if (guest !== null && !(isReadable && request.method === "GET")) {
    return sendJson(response, 403, { error: "this link is only for one run" });
  }
  switch (name) {
    case "GET session": return sendJson(response, 200, { accounts: false, name: null, usage: null });
    case "GET templates": return sendJson(response, 200, templates);
    case "GET networks": return sendJson(response, 200, networks);
    case "GET experiments": return sendJson(response, 200, experiments);
    case "POST predict": return sendJson(response, 200, runs.predict(body));
    case "POST toml": return sendText(response, null, runs.toml(body));
    case "GET queue": return sendJson(response, 200, runs.queue());
    case "GET live": return sendJson(response, 200, live());
    case "POST plan": return sendJson(response, ...plan(body));
    case "POST plan/surface": return sendJson(response, 200, surface(body));
    case "POST plan/front": return sendJson(response, 200, front(body));
    case "POST runs": return sendJson(response, ...runs.create(body));
    case "GET runs": return sendJson(response, 200, runs.list(url.searchParams));
    case "GET runs/": return sendJson(response, ...runs.show(id));
    case "PATCH runs/": return sendJson(response, ...runs.annotate(id, body.note));
    case "DELETE runs/": return sendJson(response, ...runs.remove(id));
    case "GET runs/events": return runs.watch(id, response);
    case "POST runs/link": return sendJson(response, ...runs.link(id, request.headers.host));
    case "DELETE runs/link": return sendJson(response, ...runs.withdrawLink(id));
    case "POST runs/stop": return sendJson(response, ...runs.stop(id));
    case "POST runs/resume": return sendJson(response, ...runs.resume(id));
    case "GET runs/files": return sendText(response, `${id}-${parts[3]}`, runs.file(id, parts[3]));
    default: return sendJson(response, 404, { error: "there is no such address" });
  }
}

const port = Number(process.argv[2] ?? 8097);
createServer((request, response) => {
  // A run's own address has an empty part at its end.
  if (/^\/api\/runs\/[^/?]+$/.test(request.url)) request.url += "/";
  answer(request, response).catch((error) => sendJson(response, 500, { error: String(error) }));
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/`));
