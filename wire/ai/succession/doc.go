// Package succession verifies how one key of a site follows another.
//
// A site that changes its key signs with the old one that the new one comes
// after it. A server shows a device the chain of the keys a site had, the oldest
// first. The device walks it from the key that counts now, and may take that key
// for the site's if it reaches one that its owner approved; each step is signed,
// so a server cannot put a key of its own under a site that was approved.
//
// The signed text is the context and the two key ids, parted by colons:
//
//	byollm/v1/site-succession:<previous>:<next>
//
// The package refuses to approve anything: which keys are approved is asked of
// the caller, and so is until when an old key counts.
package succession
