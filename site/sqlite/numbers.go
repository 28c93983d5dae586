package sqlite

// Numbers are the names of what [Store.Number] tells, each with what it means.
var Numbers = map[string]string{
	"commits_total":         "Commits since the store was opened.",
	"writes_total":          "Writes acknowledged since the store was opened.",
	"writes_failed_total":   "Writes undone for an error of their own.",
	"writes_refused_total":  "Writes turned away because the queue was full.",
	"writes_queued":         "Writes that wait now.",
	"commit_seconds_latest": "How long the latest commit took, with its sync.",
}

// Number tells one of [Numbers]; it is 0 for any other name.
func (s *Store) Number(name string) float64 {
	n := s.db.Stats()
	switch name {
	case "commits_total":
		return float64(n.Commits)
	case "writes_total":
		return float64(n.Functions)
	case "writes_failed_total":
		return float64(n.Failed + n.Lost)
	case "writes_refused_total":
		return float64(n.Refused)
	case "writes_queued":
		return float64(n.Queued)
	case "commit_seconds_latest":
		return n.LastCommit.Seconds()
	}
	return 0
}
