// trigen emit --arch sm_80 --candidate newton_schulz_sm80:tile=128x64x16,warps=4x2,stages=2,splitk=1,vec=1x8x2 newton_schulz,dtype=bf16,B=1,H=1,T=128,D=1024,K=5,pad=0
