/** An id, below or beside the name that it belongs to. */
export function IdText({ id }: { id: string }) {
  return <p className="small dimmed mono">{id}</p>;
}
