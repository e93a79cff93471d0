// Runs the unit tests: bundles src/*.test.ts, because Node 20 reads no TypeScript, and gives them to
// Node's own test runner.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { build } from "vite";

const out = "node_modules/.tests";
rmSync(out, { recursive: true, force: true });
const tests = readdirSync("src").filter((name) => name.endsWith(".test.ts"));
await build({
  logLevel: "warn",
  publicDir: false,
  configFile: false,
  build: {
    ssr: true,
    outDir: out,
    rollupOptions: { input: tests.map((name) => `src/${name}`), output: { entryFileNames: "[name].mjs" } },
  },
});
const files = tests.map((name) => `${out}/${name.replace(/\.ts$/, ".mjs")}`);
const { status } = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" });
process.exit(status ?? 1);
