import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { AnchorLink } from "@/shared/ui/links";

export function Missing() {
  useTitle("Not found");
  return (
    <Empty title="Page not found" alone>
      <AnchorLink to="/jobs">Go to jobs</AnchorLink>
    </Empty>
  );
}
