import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { tar, tarLength } from "./tar";

const bytes = (text: string) => new TextEncoder().encode(text);
const long = `${"d".repeat(90)}/${"e".repeat(60)}/${"f".repeat(90)}`;
const files = [
  { path: "pair/web-server.sh", content: bytes("echo ä\n") },
  { path: "pair/empty", content: new Uint8Array() },
  { path: "pair/a block", content: new Uint8Array(512).fill(7) },
  { path: "pair/program", content: new Uint8Array([0x7f, 0x45, 0x4c, 0x46, ...new Uint8Array(600)]) },
  { path: "pair/run", content: bytes("#!/bin/sh\n") },
  { path: "pair/größe", content: bytes("1") },
  { path: long, content: bytes("deep") },
];

test("tar unpacks what was packed, with the rights of programs", () => {
  const directory = mkdtempSync(join(tmpdir(), "tar-test-"));
  try {
    writeFileSync(join(directory, "all.tar"), tar(files));
    execFileSync("tar", ["--extract", "--file", "all.tar"], { cwd: directory });
    for (const { path, content } of files) {
      assert.deepEqual(new Uint8Array(readFileSync(join(directory, path))), content, path);
      const isProgram = (statSync(join(directory, path)).mode & 0o111) !== 0;
      assert.equal(isProgram, path === "pair/program" || path === "pair/run", path);
    }
    const listed = execFileSync("tar", ["--list", "--quoting-style=literal", "--file", "all.tar"], { cwd: directory, encoding: "utf8" });
    assert.deepEqual(listed.trimEnd().split("\n"), files.map((file) => file.path));
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("the length of an archive is known before it is made", () => {
  assert.equal(tarLength(files.map((file) => file.content.length)), tar(files).length);
  assert.equal(tarLength([]), 1024);
});

test("a path that the format does not have is refused", () => {
  assert.throws(() => tar([{ path: "x".repeat(101), content: bytes("") }]), /too long/);
  assert.throws(() => tar([{ path: `${"x".repeat(156)}/y${"z".repeat(99)}`, content: bytes("") }]), /too long/);
});
