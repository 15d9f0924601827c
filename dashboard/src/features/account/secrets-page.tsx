import { Stack } from "@mantine/core";
import { PageHeading } from "@/shared/page/heading";
import { Secrets } from "@/shared/secrets/secrets";
import { useTitle } from "@/shared/title";

/** The user's own secrets. */
export default function SecretsPage() {
  useTitle("Your secrets");
  return (
    <Stack gap="md">
      <PageHeading title="Your secrets" />
      <Secrets project={null} />
    </Stack>
  );
}
