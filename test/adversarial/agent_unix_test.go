//go:build unix && !linux

package adversarial

func agentMain() int { return 1 }
