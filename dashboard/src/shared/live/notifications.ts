import { useEffect, useSyncExternalStore } from "react";

/** A message of an alert to browsers. */
export interface AlertNotification {
  sequence: number;
  title: string;
  text: string;
  path: string;
}

/** `unsupported`: there are none on this address, or in this browser. */
type Permission = NotificationPermission | "unsupported";

const KEY = "trainhall-notification";
const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;

let changed: () => void = () => undefined;

function subscribe(listener: () => void): () => void {
  const before = changed;
  changed = () => {
    before();
    listener();
  };
  return () => {
    changed = before;
  };
}

function permissionNow(): Permission {
  return typeof Notification === "undefined" || !window.isSecureContext
    ? "unsupported"
    : Notification.permission;
}

export function useNotificationPermission(): { permission: Permission; ask: () => void } {
  const permission = useSyncExternalStore(subscribe, permissionNow);
  const ask = () => void Notification.requestPermission().then(() => changed());
  return { permission, ask };
}

/**
 * Shows the messages of alerts once the browser's user has allowed that.
 *
 * The browser keeps the last sequence it has seen, so that it gets afterwards what it has missed.
 */
export function useNotifications(open: (path: string) => void): void {
  const { permission } = useNotificationPermission();
  useEffect(() => {
    if (permission !== "granted") return;
    return follow((message) => show(message, open));
  }, [permission, open]);
}

/** Follows the stream until the returned function is called. */
export function follow(
  deliver: (message: AlertNotification) => void,
  connect: (url: string) => WebSocket = (url) => new WebSocket(url),
): () => void {
  let socket: WebSocket | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let pause = FIRST_PAUSE_MS;
  const begin = () => {
    const current = connect(streamUrl(localStorage.getItem(KEY)));
    socket = current;
    current.onmessage = ({ data }) => {
      pause = FIRST_PAUSE_MS;
      const message = JSON.parse(String(data));
      const isNew =
        message.type !== "ready" && message.sequence > Number(localStorage.getItem(KEY));
      localStorage.setItem(KEY, String(message.sequence));
      // Another tab has shown the others.
      if (isNew) deliver(message);
    };
    current.onclose = () => {
      if (socket !== current) return;
      timer = setTimeout(begin, pause * (0.5 + Math.random() / 2));
      pause = Math.min(2 * pause, MAX_PAUSE_MS);
    };
  };
  begin();
  return () => {
    clearTimeout(timer);
    const last = socket;
    socket = null;
    last?.close();
  };
}

function show({ title, text, path, sequence }: AlertNotification, open: (path: string) => void) {
  // The tag keeps two tabs from showing it twice.
  const shown = new Notification(title, { body: text, tag: `trainhall-${sequence}` });
  shown.onclick = () => {
    window.focus();
    open(path);
    shown.close();
  };
}

function streamUrl(after: string | null): string {
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  const query = after !== null && /^\d{1,15}$/.test(after) ? `?after=${after}` : "";
  return `${scheme}://${window.location.host}/api/v1/alerts/stream${query}`;
}
