package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Heartbeat takes the report of a host, at [spark.Path] (F11). It answers with 200
// and the receipt; with 409 and the refusal where the releases do not go together,
// and for nothing else; and else with the status and the name of a refusal.
func (a *API) Heartbeat() http.Handler {
	return a.carrier.Route(spark.MaxRequest, func(ctx context.Context, peer string, body []byte) (int, []byte) {
		content, err := a.report(ctx, body)
		if err == nil {
			a.reports.Add(1)
			return http.StatusOK, content
		}
		a.refusedReports.Add(1)
		// The whole exchange is sensitive, so that the name is all that is told of it.
		level := slog.LevelDebug
		if errors.Is(err, refusal.Internal) {
			level = slog.LevelError
		}
		a.c.Log.Log(ctx, level, "a report was refused", "peer", peer, "why", refusal.From(err).Kind().Name())
		var incompatible *handshake.Refusal
		if errors.As(err, &incompatible) {
			if content, e := handshake.RefusalCodec.Append(nil, *incompatible); e == nil {
				return handshake.Status, content
			}
		}
		return refusal.HTTP(err)
	})
}

// report is the order of the route.
func (a *API) report(ctx context.Context, body []byte) ([]byte, error) {
	offer, err := handshake.Read(body)
	if err != nil {
		return nil, err
	}
	ours := handshake.Ours(spark.Session)
	if err := handshake.Negotiate(ours, offer); err != nil {
		return nil, err
	}
	if reasons := spark.RequestCodec.Reasons(body, "request"); len(reasons) > 0 {
		return nil, rpc.ErrSchema.With(strings.Join(reasons, "; ") + ".")
	}
	r, err := spark.RequestCodec.Read(body)
	if err != nil {
		return nil, refusal.Internal.Because(err) // the reasons said that there is no problem
	}
	receipt, rotate, err := a.c.Nodes.Report(ctx, r.Bearer, r.Report)
	if err != nil {
		return nil, err
	}
	killpoint.At(killpoint.ControllerReported)
	answer, err := spark.ResponseCodec.Append(nil, spark.Response{Receipt: receipt, RotationRequired: rotate, Protocol: ours})
	if err != nil {
		return nil, refusal.Internal.Because(err)
	}
	return answer, nil
}
