//go:build !unix

package adversarial

import (
	"testing"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

func asOrdinaryUser(*testing.M) (int, bool) { return 0, false }

func fakeMain(string) int { return 1 }

func agentMain() int { return 1 }

func programSuite(t *testing.T, _ wirebackend.ID) {
	t.Skip("the programs that attack are written for Unix")
}
