/** An icon on a grid of 24 with round strokes; decorative, so hidden from screen readers. */
function icon(shape: React.ReactNode) {
  return () => (
    <svg
      width="1em"
      height="1em"
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.8}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {shape}
    </svg>
  );
}

const path = (d: string) => icon(<path d={d} />);

export const PauseIcon = path("M8 5v14M16 5v14");
export const PlayIcon = path("M7 5l12 7-12 7z");
export const CancelIcon = path("M6 6l12 12M18 6L6 18");
export const CopyIcon = icon(
  <>
    <rect x="9" y="9" width="11" height="11" rx="2" />
    <path d="M5 15V6a2 2 0 0 1 2-2h8" />
  </>,
);
export const CheckIcon = path("M5 12.500l4.500 4.500L19 7.500");
export const PlusIcon = path("M12 5v14M5 12h14");
export const PinIcon = path("M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v5");
export const TrashIcon = path("M5 7h14M10 4h4M7 7l1 13h8l1-13");
export const ArchiveIcon = path("M4 5h16v4H4zM6 9v10h12V9M10 13h4");
export const RestoreIcon = path("M4 12a8 8 0 1 0 2.500-5.800M4 4v4h4");
export const AgainIcon = path(
  "M4 12a8 8 0 0 1 14-5.300L20 9M20 4v5h-5M20 12a8 8 0 0 1-14 5.300L4 15M4 20v-5h5",
);
export const SunIcon = icon(
  <>
    <circle cx="12" cy="12" r="4" />
    <path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.600 5.600L7 7M17 17l1.400 1.400M5.600 18.400L7 17M17 7l1.400-1.400" />
  </>,
);
export const MoonIcon = path("M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500z");
export const SearchIcon = icon(
  <>
    <circle cx="11" cy="11" r="6" />
    <path d="M20 20l-4.500-4.500" />
  </>,
);
export const ResizeIcon = path("M8 4L4 8l4 4M4 8h16M16 12l4 4-4 4M20 16H4");
export const AlertIcon = path("M12 4l9 16H3zM12 10v4M12 17v.01");
export const DownIcon = path("M12 5v14M6 13l6 6 6-6");
export const ImageIcon = path("M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9v.01");
export const OutIcon = path("M10 5H5v14h14v-5M13 4h7v7M20 4l-9 9");
export const UpIcon = path("M12 19V5M6 11l6-6 6 6");
export const OpenIcon = path("M6 9l6 6 6-6");
export const CloseIcon = path("M9 6l6 6-6 6");
export const HelpIcon = icon(
  <>
    <circle cx="12" cy="12" r="9" />
    <path d="M9.500 9.500a2.500 2.500 0 1 1 3.500 2.300c-.700.300-1 .700-1 1.500M12 16.500v.010" />
  </>,
);
export const ScreenIcon = icon(
  <>
    <rect x="3" y="5" width="18" height="12" rx="2" />
    <path d="M9 21h6M12 17v4" />
  </>,
);
export const UserIcon = path("M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21a8 8 0 0 1 16 0");
