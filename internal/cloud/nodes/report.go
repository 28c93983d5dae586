package nodes

import (
	"context"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Report takes what Spark says of its host, and gives the receipt for it (F11).
// Whether Spark's credential counts, and which generation and epoch it has, is
// found in the transaction that records the report. rotate asks Spark for a new
// credential. It returns enroll.ErrCredential and enroll.ErrExpired.
func (n *Nodes) Report(ctx context.Context, b enroll.Bearer, r spark.Report) (receipt spark.Receipt, rotate bool, err error) {
	digest, err := spark.Digest(r)
	if err != nil {
		return spark.Receipt{}, false, err
	}
	text, err := spark.ReportCodec.Append(nil, r)
	if err != nil {
		return spark.Receipt{}, false, err
	}
	now := n.now()
	// Whoever has no bearer shall not keep others from writing.
	if err := n.store.Read(ctx, func(tx store.Tx) error { _, err := live(tx, b.Hash(), now); return err }); err != nil {
		return spark.Receipt{}, false, err
	}
	err = n.store.Write(ctx, func(tx store.Tx) error {
		c, err := live(tx, b.Hash(), now)
		if err != nil {
			return err
		}
		if enroll.Purpose(c.Purpose) != enroll.Spark {
			return enroll.ErrCredential
		}
		receipt = spark.Receipt{
			NodeID: c.Node, CredentialGeneration: enroll.Generation(c.Generation), SessionEpoch: enroll.Epoch(c.Epoch),
			AcceptedAt: now, ReportDigest: digest,
		}
		rotate = n.due(c, now)
		answer, err := spark.ReceiptCodec.Append(nil, receipt)
		if err != nil {
			return err
		}
		return tx.PutReport(store.Report{Node: c.Node, AcceptedAt: now, Generation: c.Generation, Report: text, Receipt: answer})
	})
	if err != nil {
		return spark.Receipt{}, false, err
	}
	return receipt, rotate, nil
}
