import { ApiError } from "@/shared/api/problem";

/** Returns the SHA-256 of an archive, in hexadecimal digits. */
export async function sha256Of(archive: Blob): Promise<string> {
  if (!window.isSecureContext) {
    throw new Error(
      "browsers hash files on https and localhost alone; open this page there, or use trainhall submit",
    );
  }
  const digest = await crypto.subtle.digest("SHA-256", await archive.arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Sends an archive for a project; null: the one that a job without a project gets. */
export function upload(
  archive: Blob,
  sha256: string,
  project: string | null,
  onProgress: (share: number) => void,
): Promise<void> {
  const query = project === null ? "" : `?project=${encodeURIComponent(project)}`;
  return new Promise((resolve, reject) => {
    // `fetch` reports no progress of what it sends.
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/v1/training/code/${sha256}${query}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    request.onload = () => {
      if (request.status < 300) resolve();
      else reject(refusalOf(request));
    };
    request.onerror = () => reject(ApiError.unreachable(null));
    request.send(archive);
  });
}

function refusalOf({ status, statusText, responseText }: XMLHttpRequest): ApiError {
  let body: unknown = responseText;
  try {
    body = JSON.parse(responseText);
  } catch {
    // What is no JSON is shown as it is.
  }
  return ApiError.of(new Response(null, { status, statusText }), body);
}
