import {
  Checkbox,
  Code,
  Group,
  Modal,
  NativeSelect,
  NumberInput,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useState } from "react";
import type { Condition, NewAlert, NewScope, NewTarget } from "@/client";
import { useMe } from "@/shared/api/login";
import { useRights } from "@/shared/api/rights";
import type { Alert } from "@/shared/api/types";
import { CopyButton } from "@/shared/copy/copy-button";
import { Dialog } from "@/shared/dialogs/dialog";
import { useRememberedScope } from "@/shared/owners/scope";
import { Problem } from "@/shared/ui/problem";
import { useChangeAlert, useCreateAlert } from "./api/alerts";
import { CONDITIONS, SCOPES, TARGETS } from "./conditions";

interface Draft {
  name: string;
  on: Condition[];
  scopeKind: NewScope["kind"];
  scopeValue: string;
  waitingMinutes: number | string;
  diskPercent: number | string;
  targetKind: NewTarget["kind"];
  targetUrl: string;
}

const NEW: Omit<Draft, "scopeKind" | "scopeValue"> = {
  name: "",
  on: ["job.failed"],
  waitingMinutes: 60,
  diskPercent: 90,
  targetKind: "browser",
  targetUrl: "",
};

interface Props {
  /** The alert to change; left out: a new one. */
  alert?: Alert | undefined;
  onClose: () => void;
}

/** Creates or changes an alert, and shows the secret of a webhook, which is shown only now. */
export function AlertForm({ alert, onClose }: Props) {
  const scope = useFirstScope();
  const [draft, setDraft] = useState(alert ? draftOf(alert) : { ...NEW, ...scope });
  const create = useCreateAlert();
  const change = useChangeAlert();
  const request = alert ? change : create;
  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const secret = request.data?.secret;
  if (secret) return <Secret secret={secret} onClose={onClose} />;
  const submit = () => {
    const options = { onSuccess: (made: { secret: string | null }) => made.secret || onClose() };
    const body = bodyOf(draft);
    if (!alert) return create.mutate({ body }, options);
    // Only the host of a Slack target is known here: left unchanged, it is not sent.
    const { target, ...rest } = body;
    const isSame = draft.targetUrl === shownUrl(alert) && draft.targetKind === alert.target.kind;
    change.mutate({ path: { alert_id: alert.id }, body: isSame ? rest : body }, options);
  };
  return (
    <Dialog
      title={alert ? `Change ${alert.name}` : "New alert"}
      action={alert ? "Save" : "Create alert"}
      busy={request.isPending}
      disabled={draft.name.trim() === "" || draft.on.length === 0}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextInput
        label="Name"
        value={draft.name}
        maxLength={128}
        onChange={(event) => set({ name: event.currentTarget.value })}
        data-autofocus
      />
      <Checkbox.Group
        label="Report"
        value={draft.on}
        onChange={(on) => set({ on: on as Condition[] })}
      >
        <SimpleGrid cols={2} spacing="xs" mt={4}>
          {Object.entries(CONDITIONS).map(([value, label]) => (
            <Checkbox key={value} size="xs" value={value} label={label} />
          ))}
        </SimpleGrid>
      </Checkbox.Group>
      <Limits draft={draft} set={set} />
      <ScopeFields draft={draft} set={set} />
      <TargetFields draft={draft} set={set} />
      {request.error ? <Problem error={request.error} what="Could not save the alert" /> : null}
    </Dialog>
  );
}

/** The widest scope that a new alert of the user may have. */
function useFirstScope(): Pick<Draft, "scopeKind" | "scopeValue"> {
  const { data: me } = useMe();
  const chosen = useRememberedScope().project;
  if (me === undefined || me.admin) return { scopeKind: "cluster", scopeValue: "" };
  const names = me.projects.map(({ name }) => name);
  const project = chosen !== undefined && names.includes(chosen) ? chosen : names[0];
  return project === undefined
    ? { scopeKind: "user", scopeValue: me.user }
    : { scopeKind: "project", scopeValue: project };
}

interface PartProps {
  draft: Draft;
  set: (part: Partial<Draft>) => void;
}

function Limits({ draft, set }: PartProps) {
  return (
    <>
      {draft.on.includes("job.waiting") ? (
        <NumberInput
          label="Longest wait in the queue"
          suffix=" min"
          min={0}
          value={draft.waitingMinutes}
          onChange={(waitingMinutes) => set({ waitingMinutes })}
        />
      ) : null}
      {draft.on.includes("disk.filling") ? (
        <NumberInput
          label="Disks fuller than"
          suffix=" %"
          min={1}
          max={100}
          value={draft.diskPercent}
          onChange={(diskPercent) => set({ diskPercent })}
        />
      ) : null}
    </>
  );
}

function ScopeFields({ draft, set }: PartProps) {
  const { user = "", projects = [] } = useMe().data ?? {};
  const isAdmin = useRights().admin === null;
  // A scope that was given when one was an admin is shown.
  const { cluster, ...others } = SCOPES;
  const scopes = isAdmin || draft.scopeKind === "cluster" ? { cluster, ...others } : others;
  const firstOf = { cluster: "", project: projects[0]?.name ?? "", user, job: "" };
  return (
    <Group grow align="flex-start">
      <NativeSelect
        label="Scope"
        data={optionsOf(scopes)}
        value={draft.scopeKind}
        onChange={({ currentTarget }) => {
          const scopeKind = currentTarget.value as Draft["scopeKind"];
          set({ scopeKind, scopeValue: firstOf[scopeKind] });
        }}
      />
      {draft.scopeKind === "cluster" ? null : (
        <TextInput
          label={draft.scopeKind === "job" ? "Job id" : `${SCOPES[draft.scopeKind]} name`}
          required
          value={draft.scopeValue}
          onChange={(event) => set({ scopeValue: event.currentTarget.value })}
        />
      )}
    </Group>
  );
}

const URL_LABELS = { webhook: "URL", slack: "URL of the incoming webhook", mail: "Address" };

function TargetFields({ draft, set }: PartProps) {
  const kind = draft.targetKind;
  return (
    <Stack gap={6}>
      <NativeSelect
        label="Send to"
        data={optionsOf(TARGETS)}
        value={kind}
        onChange={({ currentTarget }) =>
          set({ targetKind: currentTarget.value as Draft["targetKind"], targetUrl: "" })
        }
      />
      {kind === "browser" ? (
        <Text size="xs" c="dimmed">
          Browsers with an open dashboard show it once notifications are allowed.
        </Text>
      ) : (
        <TextInput
          label={URL_LABELS[kind]}
          required
          placeholder={kind === "mail" ? "maria@example.org" : "https://"}
          value={draft.targetUrl}
          onChange={(event) => set({ targetUrl: event.currentTarget.value })}
        />
      )}
    </Stack>
  );
}

function Secret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Secret of the webhook" centered>
      <Stack gap="sm">
        <Text size="sm">
          The receiver checks signatures with this secret. It is not shown again.
        </Text>
        <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
          {secret}
        </Code>
        <Group>
          <CopyButton value={secret} label="Copy secret" />
        </Group>
      </Stack>
    </Modal>
  );
}

function optionsOf(labels: Record<string, string>) {
  return Object.entries(labels).map(([value, label]) => ({ value, label }));
}

function shownUrl({ target }: Alert): string {
  return (target.url ?? "").replace(/^mailto:/, "");
}

function draftOf(alert: Alert): Draft {
  return {
    name: alert.name,
    on: alert.on,
    scopeKind: alert.scope.kind,
    scopeValue: alert.scope.value ?? "",
    waitingMinutes: alert.waiting_seconds / 60,
    diskPercent: alert.disk_percent,
    targetKind: alert.target.kind,
    targetUrl: shownUrl(alert),
  };
}

function bodyOf(draft: Draft): NewAlert {
  const { scopeKind, targetKind } = draft;
  const url = draft.targetUrl.trim();
  const value = draft.scopeValue.trim();
  return {
    name: draft.name.trim(),
    on: draft.on,
    scope: scopeKind === "cluster" ? { kind: scopeKind } : { kind: scopeKind, value },
    waiting_seconds: 60 * Number(draft.waitingMinutes),
    disk_percent: Number(draft.diskPercent),
    target:
      targetKind === "browser"
        ? { kind: targetKind }
        : { kind: targetKind, url: targetKind === "mail" ? `mailto:${url}` : url },
  };
}
