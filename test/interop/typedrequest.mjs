// The published client of typed requests, asked to send some:
//
//   node typedrequest.mjs URL '[{"method":"...","request":{...}}, ...]'
//
// The last line it prints is a JSON list with what became of each: {"response"}, or
// {"error": {"text", "data"}} as its own TypedResponseError says, or {"thrown"} for
// anything else.
import { TypedRequest, TypedResponseError } from "@api.global/typedrequest";

const [url, requests] = process.argv.slice(2);
const results = [];
for (const { method, request } of JSON.parse(requests)) {
  try {
    results.push({ response: await new TypedRequest(url, method).fire(request) });
  } catch (e) {
    results.push(
      e instanceof TypedResponseError ? { error: { text: e.errorText, data: e.errorData } } : { thrown: String(e) },
    );
  }
}
process.stdout.write("\n" + JSON.stringify(results) + "\n");
process.exit(0); // its timers would keep it
