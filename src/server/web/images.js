// Pictures to send: files of any kind that the browser shows, as data URLs that the server reads.
const AS_IS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const MAX_BYTES = 4 << 20; // larger files are scaled down to MAX_SIDE
const MAX_SIDE = 2048;

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

export function bytesText(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${Math.round(bytes / 1000)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

// {name, url, width, height, bytes, scaled}: what will be sent. Throws an Error to show.
export async function readImage(file) {
  const name = file.name || 'pasted image';
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${name} is no image that this browser can read.`);
  }
  const out = { name, width: bitmap.width, height: bitmap.height, scaled: false };
  let blob = file;
  const large = file.size > MAX_BYTES;
  if (large || !AS_IS.includes(file.type)) {
    const scale = large ? Math.min(1, MAX_SIDE / Math.max(out.width, out.height)) : 1;
    out.width = Math.max(1, Math.round(out.width * scale));
    out.height = Math.max(1, Math.round(out.height * scale));
    out.scaled = scale < 1;
    const canvas = new OffscreenCanvas(out.width, out.height);
    const context = canvas.getContext('2d');
    context.imageSmoothingQuality = 'high';
    context.drawImage(bitmap, 0, 0, out.width, out.height);
    blob = await canvas.convertToBlob(large ? { type: 'image/jpeg', quality: 0.92 }
      : { type: 'image/png' });
  }
  bitmap.close();
  out.bytes = blob.size;
  out.url = await dataUrl(blob);
  return out;
}

// The image files of a drop or a paste.
export function imageFiles(transfer) {
  return [...(transfer?.files ?? [])].filter((file) => file.type.startsWith('image/'));
}
