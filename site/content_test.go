package site_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// watched is a store that notes how jobs are read of it.
type watched struct {
	site.Store
	mu    sync.Mutex
	reads []bool // with content or not
}

func (w *watched) Jobs() site.JobStore { return watchedJobs{w.Store.Jobs(), w} }

// taken returns the reads so far, and begins anew.
func (w *watched) taken() []bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	reads := w.reads
	w.reads = nil
	return reads
}

type watchedJobs struct {
	site.JobStore
	w *watched
}

func (j watchedJobs) Job(ctx context.Context, id ai.JobID, content bool) (site.Job, error) {
	j.w.mu.Lock()
	j.w.reads = append(j.w.reads, content)
	j.w.mu.Unlock()
	return j.JobStore.Job(ctx, id, content)
}

// TestContentIsReadForTheAnswerOnly: how long a job takes to read must not tell how
// large it is, and a wait looks often.
func TestContentIsReadForTheAnswerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{}
		h := newHouse(t, func(c *site.Config) { w.Store, c.Store = c.Store, w })
		p := paired(h, "alice")
		h.enqueue(site.Question{ID: "a"})
		_, g := p.one()
		j, err := h.site.Jobs.Get(t.Context(), "a")
		if reads := w.taken(); err != nil || j.Payload != (ai.SealedEnvelope{}) || !slices.Equal(reads, []bool{false}) {
			t.Errorf("a look: %+v, %v, with content %v", j, err, reads)
		}
		answer := make(chan site.Answer, 1)
		go func() {
			a, err := h.site.Jobs.Wait(t.Context(), "a", site.Wait{})
			if err != nil {
				t.Error(err)
			}
			answer <- a
		}()
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if reads := w.taken(); len(reads) < 4 || slices.Contains(reads, true) {
			t.Errorf("while it waits, with content %v", reads)
		}
		p.result(g, ai.Answer{Text: "yes"})
		if a := <-answer; a.Text() != "yes" {
			t.Errorf("answer %+v", a)
		}
		if reads := w.taken(); !slices.Equal(reads, []bool{false, true}) {
			t.Errorf("at the end, with content %v", reads)
		}
		j, err = h.site.Jobs.Get(t.Context(), "a")
		if reads := w.taken(); err != nil || j.Result != nil || !slices.Equal(reads, []bool{false}) {
			t.Errorf("a look at the end: %+v, %v, with content %v", j, err, reads)
		}
	})
}
