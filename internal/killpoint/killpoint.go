// Package killpoint names the places in the code where a crash would be at its
// worst, so that a test can crash there.
//
// Shipped builds contain nothing of it but the names: [At] is empty unless the
// program was built with the tag killpoints. Then the process kills itself at the
// point that the environment variable ALLOD_KILLPOINT names, without warning, as
// a power cut would. Package internal/database has points of its own, below
// these.
package killpoint

// Point is a place in the code.
type Point string

// The points. Each is reached by one job on the direct lane, by pairing, by
// telling of a job's end, or by a log that has grown old.
const (
	SiteJobStored      Point = "site-job-stored"      // a job is durable, and the app has not heard so
	SiteJobGranted     Point = "site-job-granted"     // a grant is durable, and the device has not heard so
	SiteResultRecorded Point = "site-result-recorded" // a result is durable, and the device has not heard so
	SitePairStarted    Point = "site-pair-started"    // a code is durable, and the device has not heard so
	SitePairCollected  Point = "site-pair-collected"  // an approval was read, and the device has not heard so
	SiteWebhookSent    Point = "site-webhook-sent"    // an endpoint took an event, and that is not recorded

	AgentGranted      Point = "agent-granted"       // a grant arrived, and nothing was done
	AgentPromptLogged Point = "agent-prompt-logged" // the log has the prompt, and the model was not asked
	AgentAnswered     Point = "agent-answered"      // the model answered, and the result is not kept
	AgentResultKept   Point = "agent-result-kept"   // the result is on disk, and was not sent
	AgentResultSent   Point = "agent-result-sent"   // the site answered, and the kept result is still there
	AgentPaired       Point = "agent-paired"        // the approval arrived, and the pairing is not recorded
	AgentLogReduced   Point = "agent-log-reduced"   // the log with less text is on disk, and not in its place
)

// All returns all points.
func All() []Point {
	return []Point{
		SiteJobStored, SiteJobGranted, SiteResultRecorded, SitePairStarted, SitePairCollected, SiteWebhookSent,
		AgentGranted, AgentPromptLogged, AgentAnswered, AgentResultKept, AgentResultSent, AgentPaired,
		AgentLogReduced,
	}
}
