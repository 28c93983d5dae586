// Package killpoint names the places in the code where a crash would be at its
// worst, so that a test can crash there.
//
// Shipped builds contain nothing of it but the names: [At] is empty unless the
// program was built with the tag killpoints. Then the process kills itself at the
// point that the environment variable ALLOD_KILLPOINT names, without warning, as
// a power cut would. Package internal/database has points of its own, below
// these.
//
// [Interval] is for the same tests: what a program does once a minute it can do sooner
// under the tag, where ALLOD_KILLPOINT_HASTE says how many times.
package killpoint

// Point is a place in the code.
type Point string

// The points of the direct lane. Each is reached by one job on the direct lane, by pairing, by
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

// The points of a node. Each is reached by joining, by the first report, or by a
// rotation.
const (
	SparkPrepared     Point = "spark-prepared"     // Pallet answered, and no proposal is kept
	SparkBound        Point = "spark-bound"        // Pallet is bound, and Spark does not know so
	SparkEnrolled     Point = "spark-enrolled"     // the acknowledgement arrived, and is not kept
	SparkAcknowledged Point = "spark-acknowledged" // the acknowledgement is kept, and Pallet has not heard so
	SparkActivated    Point = "spark-activated"    // Pallet is active, and Spark is not
	SparkReported     Point = "spark-reported"     // a report was taken, and its receipt is not kept
	SparkRenewed      Point = "spark-renewed"      // the next credential is kept, and was not sent
	SparkRotated      Point = "spark-rotated"      // the receipt of a rotation arrived, and is not kept

	PalletPrepared  Point = "pallet-prepared"  // the credential is kept, and Spark has not heard so
	PalletBound     Point = "pallet-bound"     // the enrollment is kept, and Spark has not heard so
	PalletActivated Point = "pallet-activated" // Pallet is active, and Spark has not heard so
	PalletRenewed   Point = "pallet-renewed"   // the next credential is kept, and was not sent
	PalletRotated   Point = "pallet-rotated"   // the receipt of a rotation arrived, and is not kept
)

// The points of a controller. The first four are reached by its first start, in this order, and each of
// the others by one request.
const (
	ControllerAuthority Point = "controller-authority" // its authority is durable, and its tokens' keys are not
	ControllerKeys      Point = "controller-keys"      // its keys are durable, and it has no database
	ControllerOperator  Point = "controller-operator"  // the first operator is durable, and there is no cluster
	ControllerBegun     Point = "controller-begun"     // all of it is durable, and the login link was not shown

	ControllerInvited  Point = "controller-invited"   // an invitation is durable, and its line was not shown
	ControllerLoggedIn Point = "controller-logged-in" // a login link is used up, and its token was not sent
	ControllerEnrolled Point = "controller-enrolled"  // an enrollment is durable, and the node has not heard so
	ControllerRotated  Point = "controller-rotated"   // a rotation is durable, and its receipt was not sent
	ControllerReported Point = "controller-reported"  // a report is durable, and its receipt was not sent
)

// Controller returns all points of a controller.
func Controller() []Point {
	return []Point{
		ControllerAuthority, ControllerKeys, ControllerOperator, ControllerBegun,
		ControllerInvited, ControllerLoggedIn, ControllerEnrolled, ControllerRotated, ControllerReported,
	}
}

// Node returns all points of a node.
func Node() []Point {
	return []Point{
		SparkPrepared, SparkBound, SparkEnrolled, SparkAcknowledged, SparkActivated, SparkReported, SparkRenewed, SparkRotated,
		PalletPrepared, PalletBound, PalletActivated, PalletRenewed, PalletRotated,
	}
}

// All returns all points of the direct lane.
func All() []Point {
	return []Point{
		SiteJobStored, SiteJobGranted, SiteResultRecorded, SitePairStarted, SitePairCollected, SiteWebhookSent,
		AgentGranted, AgentPromptLogged, AgentAnswered, AgentResultKept, AgentResultSent, AgentPaired,
		AgentLogReduced,
	}
}
