package memory_test

import (
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Engine{Open: func(string) (store.Store, error) { return memory.New(), nil }})
}
