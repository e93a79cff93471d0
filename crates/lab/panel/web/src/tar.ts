// Makes a tar archive (ustar, POSIX.1-1988) of files, so that a folder is sent as one file.

/** A file of an archive. */
export interface TarFile {
  /** Its path, with `/` between names. */
  path: string;
  content: Uint8Array;
}

const BLOCK = 512;
const MAX_NAME = 100;
const MAX_PREFIX = 155;

/** How many bytes an archive of files with these lengths has. */
export function tarLength(lengths: number[]): number {
  const blocks = lengths.map((length) => 1 + Math.ceil(length / BLOCK));
  return BLOCK * blocks.reduce((sum, count) => sum + count, 2);
}

/**
 * The archive of these files.
 *
 * Throws an error that a person understands if a path is too long for the format.
 */
export function tar(files: TarFile[]): Uint8Array<ArrayBuffer> {
  const archive = new Uint8Array(tarLength(files.map((file) => file.content.length)));
  let place = 0;
  for (const file of files) {
    archive.set(header(file), place);
    archive.set(file.content, place + BLOCK);
    place += BLOCK * (1 + Math.ceil(file.content.length / BLOCK));
  }
  return archive;
}

function header({ path, content }: TarFile): Uint8Array {
  const block = new Uint8Array(BLOCK);
  const encoder = new TextEncoder();
  const text = (at: number, value: string) => block.set(encoder.encode(value), at);
  const octal = (at: number, digits: number, value: number) => text(at, value.toString(8).padStart(digits, "0"));
  const [prefix, name] = splitPath(path);
  text(0, name);
  octal(100, 7, isProgram(content) ? 0o755 : 0o644);
  // The user and the group.
  octal(108, 7, 0);
  octal(116, 7, 0);
  octal(124, 11, content.length);
  // The time.
  octal(136, 11, 0);
  text(156, "0");
  text(257, "ustar\u000000");
  text(345, prefix);
  // The checksum counts its own field as spaces.
  text(148, " ".repeat(8));
  octal(148, 6, block.reduce((sum, byte) => sum + byte, 0));
  block[154] = 0;
  return block;
}

/** The two parts in which the format keeps a path. */
function splitPath(path: string): [string, string] {
  const length = (part: string) => new TextEncoder().encode(part).length;
  if (length(path) <= MAX_NAME) return ["", path];
  for (let place = path.indexOf("/"); place > 0; place = path.indexOf("/", place + 1)) {
    const parts: [string, string] = [path.slice(0, place), path.slice(place + 1)];
    if (length(parts[0]) <= MAX_PREFIX && length(parts[1]) <= MAX_NAME && parts[1]) return parts;
  }
  throw new Error(`The path ${path} is too long. Shorten it, or choose an archive.`);
}

/** Whether a file can be executed: a browser does not tell. Scripts and programs begin like this. */
function isProgram(content: Uint8Array): boolean {
  const begins = (...bytes: number[]) => bytes.every((byte, i) => content[i] === byte);
  return begins(0x23, 0x21) || begins(0x7f, 0x45, 0x4c, 0x46);
}
