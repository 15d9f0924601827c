import {
  BlobReader,
  BlobWriter,
  ERR_INVALID_UNCOMPRESSED_SIZE,
  ERR_SPLIT_ZIP_FILE,
  ERR_UNSAFE_FILENAME,
  ERR_UNSUPPORTED_COMPRESSION,
  type FileEntry,
  ZipReader,
} from "@zip.js/zip.js/lib/zip-core-custom.js";
import {
  type CodeFile,
  isNeverSent,
  problemOf,
  type Selection,
  type Sized,
  selectionOf,
} from "./selection";

/** A file of a zip, before it is unpacked. */
interface Member extends Sized {
  entry: FileEntry;
}

/**
 * Returns the files of a zip that are sent, unpacked; a single top folder is left away.
 * Throws an error whose message is for the user.
 */
export async function unzipped(zip: File): Promise<Selection> {
  const reader = new ZipReader(new BlobReader(zip), {
    // The page's policy allows no worker from a blob.
    useWebWorkers: false,
    filenameValidation: "strict",
    // Some programs on Windows separate the parts of a path by backslashes.
    normalizeFilename: (path) => path.replaceAll("\\", "/"),
    checkCrc32: true,
    checkOverlappingEntry: true,
  });
  try {
    const { top, members } = withoutTop(await membersOf(reader, zip.name));
    const name = top === null ? zip.name : `${zip.name} (its folder ${top})`;
    const found = selectionOf(name, members);
    const problem = problemOf(found) ?? memberProblem(found.files);
    if (problem !== null) throw new RefusedZipError(problem);
    const files: CodeFile[] = [];
    for (const member of found.files) files.push(await unpacked(member));
    return { ...found, files };
  } catch (error) {
    throw error instanceof RefusedZipError ? error : new Error(zipFault(zip.name, error));
  } finally {
    await reader.close();
  }
}

/** Message for the user; other errors are those of the library. */
class RefusedZipError extends Error {}

async function membersOf(reader: ZipReader<unknown>, name: string): Promise<Member[]> {
  const members = new Map<string, Member>();
  for await (const entry of reader.getEntriesGenerator()) {
    const path = entry.filename;
    if (entry.directory || isNeverSent(path)) continue;
    if (members.has(path))
      throw new RefusedZipError(`${name} has ${path} twice. Zip the folder again.`);
    members.set(path, { path, file: { size: entry.uncompressedSize }, entry });
  }
  return [...members.values()];
}

/** Most zips of a folder hold the folder itself: its files are meant. */
function withoutTop(members: readonly Member[]): { top: string | null; members: Member[] } {
  const top = members[0]?.path.split("/")[0] ?? "";
  if (!top || !members.every(({ path }) => path.startsWith(`${top}/`))) {
    return { top: null, members: [...members] };
  }
  const within = members.map((each) => ({ ...each, path: each.path.slice(top.length + 1) }));
  return { top, members: within };
}

function memberProblem(members: readonly Member[]): string | null {
  const encrypted = members.find(({ entry }) => entry.encrypted);
  if (encrypted) return `${encrypted.path} is encrypted. Make a zip without a password.`;
  const link = members.find(({ entry }) => entry.symlink);
  if (!link) return null;
  return `${link.path} is a symbolic link. Put the file itself in the zip, or use trainhall submit.`;
}

async function unpacked({ path, entry }: Member): Promise<CodeFile> {
  try {
    // The library stops at the declared size, which was compared with the limit.
    const content = await entry.getData(new BlobWriter());
    return { path, file: new File([content], path), isExecutable: entry.executable };
  } catch (error) {
    throw new RefusedZipError(memberFault(path, messageOf(error)));
  }
}

function memberFault(path: string, message: string): string {
  if (message === ERR_INVALID_UNCOMPRESSED_SIZE) {
    return `${path} unpacks to another size than the zip declares. Zip the folder again.`;
  }
  if (message === ERR_UNSUPPORTED_COMPRESSION) {
    return `${path} is compressed in a way that browsers cannot read. Use Deflate, the default of zip.`;
  }
  return `${path} is damaged in the zip (${message}). Make or download it again.`;
}

function zipFault(name: string, error: unknown): string {
  const message = messageOf(error);
  if (message === ERR_UNSAFE_FILENAME) {
    const path = (error as { filename?: string }).filename ?? "a file";
    return `${name} has a file outside of its folder, or with a name that is no path: ${path}. Zip the folder again.`;
  }
  if (message === ERR_SPLIT_ZIP_FILE) return `${name} is a part of a split zip. Make one file.`;
  return `${name} is damaged, or is no zip (${message}). Make or download it again.`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
