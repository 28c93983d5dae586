package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/internal/runner"
	modelserver "github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

func newChat(env Env) *cobra.Command {
	var c chatClient
	var url, keyFile string
	cmd := &cobra.Command{
		Use:   "chat [PROMPT...]",
		Short: "Ask a model through a site, as an OpenAI client does",
		Long: `Asks through the OpenAI face of a site, see docs/gateway.md. With a prompt, or with
text on standard input, it prints the answer and ends. On a terminal it reads one
turn a line and keeps what was said, until the input ends or Ctrl-C.`,
		Example: "  allod chat --url https://app.example --key-file app-key --user alice Why is the sky blue?\n" +
			"  allod chat --url http://127.0.0.1:8080 --key-file /var/lib/allod/app-key --user alice < question.txt",
		RunE: func(cmd *cobra.Command, words []string) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			if url == "" || keyFile == "" {
				return ErrUsage.With("The flags --url and --key-file are needed.")
			}
			if c.server, err = client.ParseServer(strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1")); err != nil {
				return err
			}
			key, err := readAppKey(keyFile)
			if errors.Is(err, fs.ErrNotExist) {
				return ErrUsage.With("There is no file where --key-file says.")
			}
			if err != nil {
				return err
			}
			c.key = key.Text()
			if c.server.Plain() {
				fmt.Fprintln(env.Err, "Warning: this site is reached in plain HTTP over your network. Others on it can read the key, and what is asked and answered.")
			}
			talks := len(words) == 0 && terminal(env.In)
			if talks && asJSON {
				return ErrUsage.With("With --json, give a prompt.")
			}
			if talks {
				return c.talk(cmd.Context(), env)
			}
			prompt, err := promptOf(words, env.In)
			if err != nil {
				return err
			}
			r, err := c.ask(cmd.Context(), []chatTurn{{ai.RoleUser, prompt}})
			if err != nil {
				return err
			}
			return print(cmd, env, r, func(io.Writer) error { return r.show(env) })
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&url, "url", "", "the site's address, as in https://app.example")
	fl.StringVar(&keyFile, "key-file", "", "a file with an app key that may enqueue")
	fl.StringVar(&c.user, "user", "", "the user who asks, where the key is for no single one")
	fl.StringVar(&c.model, "model", gateway.Auto, "a label of the site's; auto is the user's own machines")
	return cmd
}

// maxPrompt bounds a prompt on standard input, in bytes: more than any prompt has.
const maxPrompt = 4 * ai.MaxTextUnits

// promptOf is the one prompt of a command.
func promptOf(words []string, in io.Reader) (string, error) {
	prompt := strings.Join(words, " ")
	if len(words) == 0 {
		text, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
		if err != nil {
			return "", err
		}
		prompt = strings.TrimRight(string(text), "\r\n")
	}
	if n := ai.TextUnits(prompt); n < 1 || n > ai.MaxTextUnits || !utf8.ValidString(prompt) {
		return "", ErrUsage.With(fmt.Sprintf("The prompt must be 1 to %d characters of UTF-8.", ai.MaxTextUnits))
	}
	return prompt, nil
}

// chatClient asks one site. It is a small client of its own, so that the program
// carries no other.
type chatClient struct {
	server           client.Server
	key, user, model string
	transport        http.RoundTripper // nil is the usual one
}

type chatTurn struct {
	Role    ai.Role `json:"role"`
	Content string  `json:"content"`
}

// chatReport is one answer.
type chatReport struct {
	Answer string `json:"answer"`
	// Finish is stop, or length where the model stopped at its longest answer.
	Finish string `json:"finishReason"`
	Job    string `json:"job"`
	// Machine is own or shared.
	Machine   string `json:"machine"`
	Untrusted bool   `json:"untrusted"`
	// Instead is why the device's first choice did not run; empty where it did.
	Instead string `json:"instead,omitzero"`
}

func (r chatReport) show(env Env) error {
	if r.Untrusted {
		fmt.Fprintln(env.Err, "This answer comes from a machine that need not be the user's own.")
	}
	if r.Instead != "" {
		why := "(" + word(r.Instead) + ")."
		if k := runner.Explain(r.Instead); k != nil {
			why += " " + k.Meaning()
		}
		fmt.Fprintln(env.Err, "Another model than the device's first choice answered "+why)
	}
	if r.Finish == "length" {
		fmt.Fprintln(env.Err, "The model stopped at its longest answer.")
	}
	_, err := fmt.Fprintln(env.Out, strings.TrimRight(inert(r.Answer), "\n"))
	return err
}

// maxChatAnswer bounds a site's answer, in bytes: more than a person reads.
const maxChatAnswer = 8 << 20

// How long an answer is waited for, and then how long the site may take to cancel
// the job.
const (
	chatWait   = 15 * time.Minute
	cancelWait = 10 * time.Second
)

// post sends a body to a path of the site and reads the answer. The key goes to
// this address and nowhere else. It returns client.ErrUnreachable, client.ErrAnswer
// for what is too long, and the context's error.
func (c chatClient) post(ctx context.Context, path string, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, client.ErrServerURL.Because(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Allod-Cancel-On-Disconnect", "true")
	web := http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	failed := func(err error) (*http.Response, []byte, error) {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, client.ErrUnreachable.Because(err)
	}
	answer, err := web.Do(r)
	if err != nil {
		return failed(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxChatAnswer+1))
	if err != nil {
		return failed(err)
	}
	if len(text) > maxChatAnswer {
		return nil, nil, client.ErrAnswer.With("It is longer than 8 MiB.")
	}
	return answer, text, nil
}

// ask asks for the next turn. The job is canceled if the wait for it ends before it
// is over.
func (c chatClient) ask(ctx context.Context, turns []chatTurn) (chatReport, error) {
	body, err := json.Marshal(struct {
		Model    string     `json:"model"`
		Messages []chatTurn `json:"messages"`
		User     string     `json:"user,omitzero"`
	}{c.model, turns, c.user})
	if err != nil {
		return chatReport{}, ErrUsage.With("The flags and the prompt must be UTF-8.")
	}
	waits, end := context.WithTimeout(ctx, chatWait)
	defer end()
	answer, text, err := c.post(waits, "/v1/chat/completions", body)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		// The site sees the connection end, and cancels the job.
		err = client.ErrUnreachable.With("There was no answer within 15 minutes.").Because(err)
	}
	if err != nil {
		return chatReport{}, err
	}
	if answer.StatusCode != http.StatusOK {
		err := chatRefusal(answer.StatusCode, text)
		if job := answer.Header.Get("X-Allod-Job"); plainJob(job) && (errors.Is(err, gateway.ErrPending) || errors.Is(err, gateway.ErrStopping)) {
			err = c.cancel(ctx, job, err)
		}
		return chatReport{}, err
	}
	var said struct {
		Choices []struct {
			Message chatTurn `json:"message"`
			Finish  string   `json:"finish_reason"`
		} `json:"choices"`
	}
	if json.Unmarshal(text, &said) != nil || len(said.Choices) != 1 {
		return chatReport{}, client.ErrAnswer
	}
	r := chatReport{
		Answer: said.Choices[0].Message.Content, Finish: said.Choices[0].Finish,
		Job: answer.Header.Get("X-Allod-Job"), Machine: answer.Header.Get("X-Allod-Machine"),
		Untrusted: answer.Header.Get("X-Allod-Untrusted") != "false", Instead: answer.Header.Get("X-Allod-Instead"),
	}
	if !plainJob(r.Job) || r.Machine != "own" && r.Machine != "shared" || r.Finish != "stop" && r.Finish != "length" ||
		r.Instead != "" && !(ai.Instead{Model: "-", Why: r.Instead}).Valid() {
		return chatReport{}, client.ErrAnswer
	}
	return r, nil
}

// plainJob reports whether a text is an id as a gateway gives to its jobs, which
// can stand in a path and on a terminal.
func plainJob(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// cancel cancels a job that goes on although nobody waits for it any more, and
// returns what is left to say: that it was canceled, or why it is not waited for and
// its id.
func (c chatClient) cancel(ctx context.Context, job string, why error) error {
	ctx, end := context.WithTimeout(ctx, cancelWait)
	defer end()
	if answer, _, err := c.post(ctx, "/v1/jobs/"+job+"/cancel", nil); err == nil && answer.StatusCode == http.StatusOK {
		return gateway.ErrCanceled.With("There was none in the time that the site waits.")
	}
	return refusal.From(why).Kind().With("The job is " + job + ".")
}

// chatRefusal is a site's refusal by its code, in words of our own: those of the
// answer are another machine's.
func chatRefusal(status int, text []byte) error {
	var said struct {
		Error struct {
			Code  string `json:"code"`
			Param string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &said) != nil || said.Error.Code == "" {
		return client.ErrAnswer
	}
	k := gateway.KindOf(said.Error.Code)
	switch {
	case k != nil && said.Error.Param == "user":
		return k.With("See the flag --user.")
	case k != nil && said.Error.Param == "model":
		return k.With("See the flag --model.")
	case k != nil:
		return k.With("")
	case status == http.StatusBadGateway:
		return gateway.ErrDevice.With("The device reports: " + modelserver.KindOf(said.Error.Code).Meaning())
	}
	return client.ErrAnswer.With("It is a failure of the site's own.")
}

// talk reads a turn a line until the input ends.
func (c chatClient) talk(ctx context.Context, env Env) error {
	fmt.Fprintln(env.Err, "One line is one turn. End with Ctrl-D.")
	in := bufio.NewScanner(env.In)
	in.Buffer(nil, maxPrompt)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	var turns []chatTurn
	for {
		fmt.Fprint(env.Out, "> ")
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !more {
			fmt.Fprintln(env.Out)
			return in.Err()
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		prompt, err := promptOf([]string{line}, nil)
		var r chatReport
		asked := append(turns, chatTurn{ai.RoleUser, prompt})
		if err == nil {
			r, err = c.ask(ctx, asked[max(0, len(asked)-ai.MaxMessages):])
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			// The turn counts as not said, and the person may try again.
			fmt.Fprintln(env.Err, refusal.Terminal(err))
			continue
		}
		turns = append(asked, chatTurn{ai.RoleAssistant, r.Answer})
		if err := r.show(env); err != nil {
			return err
		}
	}
}
