import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { AnchorLink } from "@/shared/ui/links";

export function Missing() {
  useTitle("Not found");
  return (
    <Empty title="There is no such page">
      <AnchorLink to="/jobs">Go to the jobs</AnchorLink>
    </Empty>
  );
}
