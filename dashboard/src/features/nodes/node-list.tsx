import type { ClusterNode } from "@/shared/api/types";
import { NodeCard } from "./node-card";
import { COLUMNS, NodeRow } from "./node-row";
import classes from "./nodes.module.css";

interface Props {
  nodes: ClusterNode[];
  /** Names of jobs, by their ids. */
  names: Map<string, string>;
  /** Names of the nodes of which every device is shown. */
  opened: string[];
  onOpen: (name: string) => void;
  onClose: (name: string) => void;
}

/** A line a node, so that fifty hosts are seen at once; the opened ones with all of their devices. */
export function NodeList({ nodes, names, opened, onOpen, onClose }: Props) {
  const card = (node: ClusterNode) => (
    <NodeCard key={node.id} node={node} names={names} onClose={() => onClose(node.name)} />
  );
  if (nodes.every((node) => opened.includes(node.name))) return nodes.map(card);
  return (
    <div className="app-card">
      <table className={`app-table ${classes.nodes}`} aria-label="Nodes">
        <thead>
          <tr>
            {COLUMNS.map(({ label, right }) => (
              <th key={label} scope="col" className={right ? "right" : ""}>
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) =>
            opened.includes(node.name) ? (
              <tr key={node.id}>
                <td colSpan={COLUMNS.length} className={classes.opened}>
                  {card(node)}
                </td>
              </tr>
            ) : (
              <NodeRow key={node.id} node={node} names={names} onOpen={() => onOpen(node.name)} />
            ),
          )}
        </tbody>
      </table>
    </div>
  );
}
