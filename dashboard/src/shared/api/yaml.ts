/** A document in YAML that creates something. */
export interface Submission {
  text: string;
  /** Idempotency key: the same text under it creates nothing more. */
  key?: string;
}

/** The body and the headers of a request that sends YAML as it is, so that errors name its lines. */
export function yamlRequest({ text, key }: Submission) {
  return {
    // The generated client expects JSON.
    body: text as never,
    // It would leave out the content type of an empty body.
    bodySerializer: () => text || "\n",
    headers: {
      "Content-Type": "application/yaml",
      ...(key === undefined ? {} : { "Idempotency-Key": key }),
    },
  };
}
