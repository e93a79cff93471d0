// Writes dist/source.sha256, by which a test without Node checks that dist belongs to the sources.
//
// The file contains 64 lowercase hexadecimal digits and a newline: the SHA-256 of the sources, one
// after the other. These are index.html, package-lock.json and all files in src at any depth,
// with paths relative to this directory and with "/" between their parts. They are sorted by
// the bytes of their paths. Each contributes: its path in UTF-8, a NUL byte, its length in bytes as
// a decimal number in ASCII, a NUL byte, and its bytes.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(fileURLToPath(import.meta.url));

function filesIn(directory) {
  return readdirSync(join(root, directory), { withFileTypes: true }).flatMap((entry) => {
    const path = `${directory}/${entry.name}`;
    return entry.isDirectory() ? filesIn(path) : [path];
  });
}

const paths = ["index.html", "package-lock.json", ...filesIn("src")];
paths.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

const digest = createHash("sha256");
for (const path of paths) {
  const bytes = readFileSync(join(root, path));
  digest.update(path).update("\0").update(String(bytes.length)).update("\0").update(bytes);
}
writeFileSync(join(root, "dist/source.sha256"), `${digest.digest("hex")}\n`);
