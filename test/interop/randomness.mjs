// Lets a sealer draw the bytes that a recording names. It must be loaded before
// the packages of the contract: their library of boxes keeps the source that it
// finds first, and draws one byte of its secret as one number.
let next = [];
const real = globalThis.crypto.getRandomValues.bind(globalThis.crypto);

// randomness makes the next draws come from the given bytes; without an
// argument the system's are drawn again. It says how many were left.
export function randomness(hex) {
  const left = next.length;
  next = hex === undefined ? [] : [...Buffer.from(hex, "hex")];
  return left;
}

globalThis.self ??= globalThis;
Object.defineProperty(globalThis.crypto, "getRandomValues", {
  configurable: true,
  value: (view) => {
    if (next.length === 0) return real(view);
    for (let i = 0; i < view.length; i++) view[i] = next.shift();
    return view;
  },
});
