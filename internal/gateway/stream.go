package gateway

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
)

// Comments are sent where nothing else is, so that nobody between takes the
// connection for dead: the first soon, so that a client sees that it was heard.
const (
	firstComment = time.Second
	nextComments = 10 * time.Second
)

const (
	comment = ": keep-alive\n\n"
	theEnd  = "data: [DONE]\n\n"
)

// events writes server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// write sends bytes at once. An error means that nobody reads any more.
func (e events) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder has no connection
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}

// stream answers with events. The job is stored, so from here on errors are
// events too.
func (g *gateway) stream(c *call, control *http.ResponseController, a *asked) error {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no")
	c.w.WriteHeader(http.StatusOK)
	e := events{c.w, control}
	_ = e.write("") // an error shows with the next write, or as an end of the request

	type end struct {
		answer site.Answer
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		answer, err := g.await(c.r.Context(), a)
		ended <- end{answer, err}
	}()
	quiet := time.NewTimer(firstComment)
	defer quiet.Stop()
	for {
		select {
		case end := <-ended:
			if end.err != nil {
				g.streamProblem(c, e, problemOf(a.hindered(end.err)))
				return nil
			}
			streamAnswer(e, a, end.answer)
			return nil
		case <-quiet.C:
			_ = e.write(comment) // as above
			quiet.Reset(nextComments)
		}
	}
}

func streamAnswer(e events, a *asked, answer site.Answer) {
	for _, piece := range pieces(a, answer) {
		text, err := json.Marshal(piece)
		if err != nil || e.write("data: "+string(text)+"\n\n") != nil {
			return
		}
	}
	_ = e.write(theEnd) // nobody is left to be told
}

// streamProblem ends a stream with an error in the form that OpenAI's clients
// read.
func (g *gateway) streamProblem(c *call, e events, p *problem) {
	if c.r.Context().Err() != nil {
		return
	}
	status, body := p.body()
	if status >= http.StatusInternalServerError {
		g.Logger.WarnContext(c.r.Context(), "gateway refused", "error", refusal.From(p.what))
	}
	_ = e.write("event: error\ndata: " + string(body) + "\n\n") // nobody is left to be told
}
