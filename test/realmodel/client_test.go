package realmodel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// What the server says, read over plain net/http, so that a fault of the agent's
// own reader shows as one.

const maxAnswer = 1 << 20 // bytes

// An answer is what one chat completion brought.
type answer struct {
	text                 string
	finish               string
	promptTokens, tokens int
}

// A statusError is an answer other than 2xx.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the server answered with status %d", int(e)) }

// models asks which models there are. The base ends in /v1.
func models(ctx context.Context, base string) ([]string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := ask(ctx, http.MethodGet, base+"/models", nil, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// chat runs one prompt. The base ends in /v1.
func chat(ctx context.Context, base, model, prompt string) (answer, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream"`
	}{model, []message{{"user", prompt}}, false})
	if err != nil {
		return answer{}, err
	}
	var completion struct {
		Choices []struct {
			Message struct {
				Content *string `json:"content"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := ask(ctx, http.MethodPost, base+"/chat/completions", body, &completion); err != nil {
		return answer{}, err
	}
	if len(completion.Choices) == 0 || completion.Choices[0].Message.Content == nil {
		return answer{}, fmt.Errorf("the completion has no content")
	}
	first := completion.Choices[0]
	return answer{*first.Message.Content, first.Finish, completion.Usage.Prompt, completion.Usage.Completion}, nil
}

func ask(ctx context.Context, method, url string, body []byte, into any) error {
	status, read, err := call(ctx, method, url, body)
	if err != nil {
		return err
	}
	if status/100 != 2 {
		return statusError(status)
	}
	return json.Unmarshal(read, into)
}

// client uses no proxy, since the server is on this machine, and follows no redirect.
var client = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func call(ctx context.Context, method, url string, body []byte) (status int, read []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	read, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode, read, err
}
