import { useEffect, useState } from "react";

interface Props {
  content: ArrayBuffer;
  /** Its media type. */
  type: string;
  alt: string;
  className?: string | undefined;
}

/** Pixels up to which an image is enlarged without a blur, such as samples of digits. */
const SMALL = 256;

/** An image that a job has written: drawn as a picture, and nothing else. */
export function BlobImage({ content, type, alt, className }: Props) {
  const [url, setUrl] = useState<string>();
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([content], { type }));
    setUrl(made);
    setBroken(false);
    return () => URL.revokeObjectURL(made);
  }, [content, type]);
  if (isBroken) return <p className="small dimmed">The file is damaged, or no image.</p>;
  return url === undefined ? null : (
    <img
      src={url}
      alt={alt}
      className={className}
      onLoad={({ currentTarget: image }) => {
        image.style.imageRendering = image.naturalWidth <= SMALL ? "pixelated" : "auto";
      }}
      onError={() => setBroken(true)}
    />
  );
}
