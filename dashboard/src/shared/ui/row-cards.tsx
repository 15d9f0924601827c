import classes from "./row-cards.module.css";

/** The class of a table whose rows are cards where the window is too narrow for columns. */
export const ROW_CARDS = classes.cards ?? "";

type Props = React.ComponentProps<"td"> & {
  /** Its area in `grid-template-areas` of the rows; and its `data-cell`, for what it alone needs. */
  name: string;
};

/** A cell of such a table. */
export function Cell({ name, ...rest }: Props) {
  return <td data-cell={name} style={{ gridArea: name }} {...rest} />;
}
