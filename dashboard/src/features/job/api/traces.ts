import { useQuery } from "@tanstack/react-query";
import { ApiError } from "@/shared/api/problem";
import { bytes } from "@/shared/format";
import { fileUrl } from "./outputs";

/** Bytes of a trace before compression that a page can hold several times over. */
const MAX_TRACE_BYTES = 256 * 1024 * 1024;

/**
 * The JSON of a compressed trace.
 *
 * @param most bytes before compression
 * @throws ApiError
 * @throws Error it is larger, or damaged
 */
export async function readTrace(
  jobId: string,
  path: string,
  signal: AbortSignal,
  most = MAX_TRACE_BYTES,
): Promise<unknown> {
  const url = new URL(fileUrl(jobId, path), window.location.origin);
  const response = await fetch(url, { signal }).catch((error: unknown) => {
    throw ApiError.unreachable(error);
  });
  if (!response.ok || response.body === null) {
    throw ApiError.of(response, await response.json().catch(() => response.text()));
  }
  const reader = response.body.pipeThrough(new DecompressionStream("gzip")).getReader();
  const decoder = new TextDecoder();
  let json = "";
  let size = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.byteLength;
    if (size > most) {
      await reader.cancel();
      throw new Error(
        `The trace has more than ${bytes(most)} before compression: download it for Perfetto, or profile fewer steps`,
      );
    }
    json += decoder.decode(next.value, { stream: true });
  }
  return JSON.parse(json + decoder.decode());
}

/** What `convert` makes of a trace; it is forgotten when nothing shows it. */
export function useTrace<Converted>(
  jobId: string,
  path: string,
  convert: (trace: unknown) => Converted,
) {
  return useQuery({
    queryKey: ["trace", jobId, path],
    queryFn: async ({ signal }) => convert(await readTrace(jobId, path, signal)),
    gcTime: 0,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
    // A trace is large, and never changes.
    structuralSharing: false,
  });
}
